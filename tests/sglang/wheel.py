"""SGLang's own modules from its wheel, as far as they need no GPU: its algorithms with their loops,
its requests' and scheduler's part for diffusion, its hooks. All else is an empty class.
"""

import ast
import importlib
import importlib.abc
import importlib.machinery
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from dise_sglang import plugin

with warnings.catch_warnings():  # what torch.compile, of SGLang's, imports of torch is deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    importlib.import_module("torch.utils.mkldnn")

WHEELS = Path(__file__).parents[2] / "build" / "sglang"
"""Where `make sglang` puts SGLang, a folder a version."""

NONE = "make sglang fetches SGLang's wheels"
VERSIONS = sorted(folder.name for folder in WHEELS.glob("[0-9]*"))

REAL = {
    "sglang", "sglang.srt", "sglang.srt.plugins", "sglang.srt.plugins.hook_registry",
    "sglang.srt.entrypoints.openai.protocol",
    "sglang.srt.dllm", "sglang.srt.dllm.mixin", "sglang.srt.dllm.mixin.req",
    "sglang.srt.dllm.mixin.scheduler", "sglang.srt.dllm.algorithm",
    *(f"sglang.srt.dllm.algorithm.{name}"
      for name in ("base", "low_confidence", "joint_threshold", "joint_threshold_indel",
                   "gemma4_renoise")),
}  # fmt: skip

METHODS = {
    "sglang.srt.managers.tokenizer_manager": (
        "TokenizerManager", ("_accumulate_request_meta_info", "update_request_meta_info"),
    ),
}  # fmt: skip
"""Methods that are taken one by one out of modules which need a GPU."""


class Elsewhere(ModuleType):
    """A module of which each name is an empty class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds SGLang's modules in a folder: the REAL ones, and stand-ins of the others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] != "sglang" or name.rpartition(".")[2][0].isupper():
            return None  # of a class, which is looked up in its module
        place = self.folder / name.replace(".", "/")
        if name in REAL and name.count(".") > 1:
            return importlib.machinery.PathFinder.find_spec(name, [str(place.parent)])
        spec = importlib.machinery.ModuleSpec(name, self, is_package=True)
        spec.submodule_search_locations = [str(place)]
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return Elsewhere(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        if name == "sglang.srt.utils":
            module.is_npu = lambda: False  # type: ignore[attr-defined]
        if name in ("sglang.srt.mem_cache.common", "sglang.srt.managers.schedule_batch"):
            module.release_kv_cache = lambda *_, **__: None  # type: ignore[attr-defined]
            module.FINISH_LENGTH = SimpleNamespace  # type: ignore[attr-defined]
        if name.startswith("sglang.srt.entrypoints.openai.serving_"):
            kinds = {"OpenAIServingChat": "_build_chat_response",
                     "OpenAIServingCompletion": "_build_completion_response"}  # fmt: skip
            for kind, method in kinds.items():
                made = lambda self, request, ret, created: request  # noqa: E731
                setattr(module, kind, type(kind, (), {method: made}))
        if name in METHODS:
            kind, wanted = METHODS[name]
            source = (self.folder / f"{name.replace('.', '/')}.py").read_text()
            setattr(module, kind, _class_of(source, kind, wanted))


def _class_of(source: str, name: str, wanted: Sequence[str]) -> Any:
    """Return the class of that source with those methods alone."""
    [kind] = [node for node in ast.parse(source).body
              if isinstance(node, ast.ClassDef) and node.name == name]  # fmt: skip
    kind.bases, kind.decorator_list = [], []
    kind.body = [node for node in kind.body
                 if isinstance(node, ast.FunctionDef) and node.name in wanted]  # fmt: skip
    scope: dict[str, Any] = {"ReqState": Any, "Optional": Any}
    tree = ast.parse("from __future__ import annotations")
    tree.body.append(kind)
    exec(compile(tree, name, "exec"), scope)
    return scope[name]


class Struct:
    """What stands for msgspec's where that is not installed."""

    def __init_subclass__(cls, **_: object) -> None:
        pass


@contextmanager
def sglang(version: str) -> Iterator[None]:
    """Let `import sglang` mean that wheel."""
    finder = Finder(WHEELS / version)
    sys.meta_path.insert(0, finder)
    sys.modules.setdefault("msgspec", cast(ModuleType, SimpleNamespace(Struct=Struct)))
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.partition(".")[0] == "sglang"]:
            del sys.modules[name]


@pytest.fixture(params=VERSIONS or [pytest.param("", marks=pytest.mark.skip(NONE))])
def version(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each version of SGLang that is here, with our hooks."""
    with sglang(request.param):
        plugin.register()
        importlib.import_module("sglang.srt.plugins.hook_registry").HookRegistry.apply_hooks()
        yield request.param
