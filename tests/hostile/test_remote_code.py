"""A checkpoint's own Python never runs, and nobody is asked whether it may."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from dise_adapters.vllm.reader import llm_options
from dise_core import LLM, InputError
from dise_core.errors import DiseError
from dise_core.params.engine import EngineConfig
from tests.checkpoints import write
from tests.tiny_format import edit

CLASSES = ("AutoConfig", "AutoModel", "AutoModelForCausalLM", "AutoModelForMaskedLM")


def trapped(root: Path, kind: str, named: str = "", tokenizer_list: bool = False) -> Path:
    """Return a checkpoint whose files name Python of its own wherever transformers has looked for
    some; what runs it leaves the file `ran`.

    named: the class that it names for the model; "" for none.
    """
    folder = write(kind, root)
    trap = f"open({str(folder / 'ran')!r}, 'w').close()\nraise SystemExit('trapped')\n"
    (folder / "custom_generate").mkdir()
    for name in ("trap.py", "custom_generate/generate.py", "tokenization.py", "__init__.py"):
        (folder / name).write_text(trap)
    tokenizer = ["trap.TrapTokenizer", "trap.TrapTokenizer"]
    auto_map: dict[str, object] = {"AutoTokenizer": tokenizer}
    auto_map |= {each: f"trap.{named}" for each in CLASSES if named}
    edit(folder / "config.json", auto_map=auto_map)
    edit(
        folder / "tokenizer_config.json",
        auto_map=tokenizer if tokenizer_list else auto_map,
        tokenizer_class="TrapTokenizer",
    )
    (folder / "generation_config.json").write_text(
        json.dumps({"custom_generate": str(folder), "auto_map": auto_map})
    )
    return folder


def test_a_piped_yes_runs_nothing(tmp_path: Path) -> None:
    folder = trapped(tmp_path / "judge", "llama")
    arguments = ["score", "--prompt", "83,18,75 -> 10", "--response", "abc"]
    arguments += ["--judge", str(folder), "--scorer", "ar-perplexity"]
    code = f"import sys; sys.argv[1:] = {arguments!r}\nfrom dise_app.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        input="y\n" * 20,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert not (folder / "ran").exists()
    assert "[y/N]" not in done.stdout + done.stderr
    assert done.returncode in (0, 1, 2), done.stderr


@pytest.mark.parametrize(
    ("kind", "named"),
    [("llama", ""), ("llama", "LlamaForCausalLM"), ("llama", "OddModel"), ("llada", "OddModel"),
     ("dream", ""), ("qwen3", "LlamaForCausalLM"),
     ("sdar", "LlamaForCausalLM"), ("llada2", "OddModel")],
)  # fmt: skip
def test_no_kind_of_checkpoint_runs_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, named: str
) -> None:
    folder = trapped(tmp_path / "model", kind, named, tokenizer_list=not named)
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("somebody was asked"))
    refusal = pytest.raises(DiseError, match="of its own") if kind == "llama" else nullcontext()
    with refusal:
        LLM("countdown", judge=str(folder)) if kind == "llama" else LLM(str(folder))
    assert not (folder / "ran").exists()


@pytest.mark.parametrize(
    ("options", "named"),
    [({"trust_remote_code": True}, "trust_remote_code"), ({"load_format": "pt"}, "load_format")],
)
def test_vllm_cannot_be_told_to_run_code_or_pickles(options: dict[str, object], named: str) -> None:
    config = EngineConfig(engine="vllm", vllm_options=options)
    with pytest.raises(InputError, match=rf"vllm_options\.{named}=") as caught:
        llm_options(config, "generate")
    assert caught.value.parameter == "vllm_options"


def test_vllm_is_told_not_to_run_code() -> None:
    told = llm_options(EngineConfig(engine="vllm"), "pooling")
    assert (told["trust_remote_code"], told["load_format"]) == (False, "safetensors")


def test_attention_from_the_hub_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="attn_implementation='someone/kernel'"):
        LLM("countdown", attn_implementation="someone/kernel")
