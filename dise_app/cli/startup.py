"""What the command's start can do without."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

ASSISTED = "transformers.generation.candidate_generator"
"""The module that every model of transformers imports, for assisted generation."""


class WithoutScikitLearn(MetaPathFinder):
    """Imports ASSISTED as if scikit-learn were not installed.

    That module imports it for one heuristic, which no Read needs, and takes a fifth of the time
    until a model is loaded.
    """

    @classmethod
    def install(cls) -> None:
        """Do so when the module is first imported."""
        if "sklearn" not in sys.modules and ASSISTED not in sys.modules:
            sys.meta_path.insert(0, cls())

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module's own spec, with scikit-learn hidden while it runs."""
        if name != ASSISTED:
            return None
        sys.meta_path.remove(self)
        found = (finder.find_spec(name, path, target) for finder in sys.meta_path)
        spec = next(filter(None, found), None)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module
            hiding = partial(_hiding, run)
            spec.loader.exec_module = hiding  # type: ignore[method-assign]
        return spec


def _hiding(run: Callable[[ModuleType], None], module: ModuleType) -> None:
    sys.modules["sklearn"] = None  # type: ignore[assignment]  # what makes an import fail
    try:
        run(module)
    finally:
        sys.modules.pop("sklearn", None)
