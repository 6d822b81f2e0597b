"""dise plugins, dise models, and how fast the command starts."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dise_adapters.embedded import CountdownPredictor
from tests.app.conftest import Run

Dise = Callable[..., Run]


def test_plugins_lists_every_name_with_its_plugin(dise: Dise) -> None:
    rows = json.loads(dise("plugins", "--json").out)["plugins"]
    named = {(row["kind"], row["name"]): row["plugin"] for row in rows}
    assert named["scorer", "dise"] == "strategies"
    assert named["selector", "prompt-last-K"] == "strategies"
    assert named["mask predictor", "llada"] == "adapters"
    assert all(row["about"] for row in rows)
    assert "last-K" in dise("plugins").out


NAMES = (
    "a2d-qwen2", "a2d-qwen3", "countdown", "countdown-blocks", "diffugpt", "diffullama", "dream",
    "fast-dllm-v2", "illada", "llada", "llada-moe", "llada2", "llama", "modernbert", "open-dcoder",
    "rnd1", "sdar", "sdar-moe", "stable-diffcoder", "vllm-canvas", "vllm-server",
)  # fmt: skip

ATTENTION = {
    "llada": "full attention",
    "llama": "causal attention",
    "a2d-qwen3": "full or block-causal of 32",
    "sdar": "block-causal of 4 or 8 or 16 or 32 or 64",
    "llada2": "block-causal of 32",
    "stable-diffcoder": "block-causal of 4",
}


def test_models_tells_names_from_adapters(dise: Dise) -> None:
    rows = {
        row["name"]: row["by_name"] for row in json.loads(dise("models", "--json").out)["models"]
    }
    assert rows == {name: name.startswith("countdown") for name in NAMES}
    assert "countdown" in dise("models").out


def test_models_tells_what_weights_each_adapter_was_checked_on(dise: Dise) -> None:
    rows = json.loads(dise("models", "--json").out)["models"]
    checked = {row["name"]: row["checked_on_weights"] for row in rows}
    assert checked["countdown"] == checked["countdown-blocks"] == "its own"
    assert checked["sdar"] == checked["llada2"] == "random"
    assert checked["llama"] == "published"
    assert checked["vllm-server"] == ""


def test_models_tells_the_attention_of_each_family(dise: Dise) -> None:
    rows = json.loads(dise("models", "--json").out)["models"]
    about = {row["name"]: row["about"] for row in rows}
    for name, attention in ATTENTION.items():
        assert about[name].endswith(f"({attention}).")


DATA = ("--dataset", "countdown", "--output", "OUT", "--limit", "1")


@pytest.mark.parametrize(
    "verb",
    [
        ("generate", "1,2 -> 3"),
        ("score", "--response", "1+2=3"),
        ("rank", "1+2=3", "--prompt", "1,2 -> 3"),
        ("serve", "--port", "0"),
        *(("eval", name, *DATA) for name in ("uncertainty", "best-of-n", "length")),
        ("eval", "likelihood", *DATA, "--dataset", "countdown-choice"),
        ("analyze", "ranks", *DATA),
    ],
)
def test_every_verb_with_a_model_takes_an_adapter_by_name(
    dise: Dise, tmp_path: Path, verb: tuple[str, ...]
) -> None:
    done = dise(
        *(tmp_path / "out" if part == "OUT" else part for part in verb), "--adapter", "lama"
    )
    assert done.code == 2
    assert (
        "dise: unknown adapter 'lama'. Did you mean 'llama'? Known: a2d-qwen2, a2d-qwen3, countdown"
        in done.err
    )


def test_an_adapter_by_name_loads_the_model(dise: Dise) -> None:
    folder = CountdownPredictor.folder()
    scores = [
        json.loads(dise("score", "--response", "1+2=3", "--no-chat", "--json", *model).out)[
            "outputs"
        ][0]["score"]["value"]
        for model in (("--model", folder, "--adapter", "llada"), ())
    ]
    assert scores[0] == scores[1]


def test_neither_the_library_nor_the_help_imports_a_heavy_package() -> None:
    script = (
        "import sys, dise_core, dise_strategies.plugin, dise_adapters.plugin, dise_app.cli.main\n"
        "print([name for name in ('torch', 'transformers', 'fastapi', 'matplotlib') if name in "
        "sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
