"""dise plugins and dise models."""

import json
import re
from pathlib import Path
from typing import ClassVar

import pytest
from gguf import GGUFReader

from dise_core import Catalog
from dise_core.plugins import discovery
from dise_core.plugins.entry import Entry
from dise_core.plugins.kinds import ENGINE, STRATEGIES
from dise_strategies.scorers.dise import DiSE
from tests import tiny_gguf
from tests.commands import Dise
from tests.gguf_files import MODELS, convert


def test_plugins_take_at_most_120_lines_with_a_whole_sentence_for_each_strategy(dise: Dise) -> None:
    text, rows = (dise("plugins", *as_json, columns=80).out for as_json in ((), ("--json",)))
    lines = text.splitlines()
    assert len(lines) <= 120
    assert max(map(len, lines)) <= 80
    told = " ".join(text.split())
    kinds = {kind.title for kind in (*STRATEGIES, ENGINE)}
    for row in json.loads(rows)["plugins"]:
        assert row["name"] in told
        assert row["about"]
        if row["kind"] in kinds:
            assert row["about"].endswith(".")
            assert f"{row['name']}: {row['about']}" in told
    assert "Selectors, for --selector, from strategies" in lines


RECOMMENDED = {"ar-perplexity", "dise", "interleaved", "mc", "written"}


def test_plugins_recommends_a_scorer_for_each_kind_of_model_and_the_rest_for_research(
    dise: Dise,
) -> None:
    rows = json.loads(dise("plugins", "--json").out)["plugins"]
    scorers = {row["name"]: row["suits"] for row in rows if row["kind"] == "scorer"}
    assert {name for name, suits in scorers.items() if suits} == RECOMMENDED
    listed = dise("plugins", columns=80).out.partition("Selectors, for --selector")[0]
    first, research = listed.split("For research:\n")
    assert {name for name in scorers if f"  {name}: " in first} == RECOMMENDED
    assert {name for name in scorers if f"  {name}: " in research} == scorers.keys() - RECOMMENDED
    assert "Use it for models trained on finished texts" in " ".join(first.split())
    assert "Use it for auto-regressive models" in dise("plugins", "--kind", "scorer").out


def test_help_names_the_scorers_that_are_recommended_and_no_other(dise: Dise) -> None:
    told = " ".join(dise("score", "--help", columns=200).out.split())
    scorer = re.search(r"--scorer TEXT (.*?) `dise plugins` ", told)
    assert scorer is not None
    assert set(re.findall("`([a-z-]+)`", scorer[1].replace("- ", "-"))) == RECOMMENDED


def test_a_plugin_that_recommends_nothing_has_no_research(
    dise: Dise, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Mine(DiSE):
        suits: ClassVar[str] = ""

    catalog = Catalog({"scorers": {"mine": Entry(Mine, "guest"), "dise": Entry(DiSE, "own")}})
    monkeypatch.setattr(discovery, "installed_plugins", lambda: catalog)
    guest = dise("plugins").out.partition("from own")[0]
    assert "mine: " in guest
    assert "research" not in guest


NAMES = (
    "a2d-qwen2", "a2d-qwen3", "countdown", "countdown-blocks", "diffugpt", "diffullama",
    "diffusion-gemma", "dream",
    "fast-dllm-v2", "illada", "llada", "llada-moe", "llada2", "llama", "masked-lm", "open-dcoder",
    "rnd1", "sdar", "sdar-moe", "stable-diffcoder", "vllm-server", "word-problems",
)  # fmt: skip

ATTENTION = {
    "llada": "full attention",
    "llama": "causal attention",
    "a2d-qwen3": "full or block-causal of 32",
    "sdar": "block-causal of 4 or 8 or 16 or 32 or 64",
    "llada2": "block-causal of 32",
    "stable-diffcoder": "block-causal of 4",
    "diffusion-gemma": "canvases of 256",
}


def test_models_tells_names_attention_and_what_weights_each_adapter_was_checked_on(
    dise: Dise,
) -> None:
    rows = {row["name"]: row for row in json.loads(dise("models", "--json").out)["models"]}
    by_name = {"countdown", "countdown-blocks", "word-problems"}
    assert {name: row["by_name"] for name, row in rows.items()} == {
        name: name in by_name for name in NAMES
    }
    for name, attention in ATTENTION.items():
        assert rows[name]["about"].endswith(f"({attention}).")
    samplers = {name: row["sampler"] for name, row in rows.items() if row["sampler"]}
    block_diffusion = {"fast-dllm-v2", "stable-diffcoder", "llada2", "sdar", "sdar-moe"}
    assert samplers.keys() == {"diffusion-gemma", *block_diffusion}
    shown = dise("models").out
    words = " ".join(shown.split())
    assert all(f" Sampler: {sampler} " in words for sampler in samplers.values())
    assert "\N{HORIZONTAL ELLIPSIS}" not in shown, "what is cut cannot be typed"
    names, others = shown.split("Models by folder, hub id or address")
    assert [name for name in NAMES if re.search(rf"^{name}\b", names, re.M)] == sorted(by_name)
    assert "GSAI-ML/LLaDA-8B-Instruct" in others
    lines = dise("models", columns=80).out.splitlines()
    assert len(lines) <= 63
    assert max(map(len, lines)) <= 80
    weights = {"countdown": "its own", "sdar": "random", "llama": "published", "vllm-server": ""}
    assert {name: rows[name]["checked_on_weights"] for name in weights} == weights


def test_models_tells_what_a_model_was_trained_on_and_its_scorers(
    dise: Dise, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["LLaDAModelLM"]}))
    hidden = {"generated": "written", "given": "interleaved"}
    seen = dict.fromkeys(hidden, "dise")
    for model, name, trained_on, scorers in (
        (tmp_path, "llada", "masks alone", hidden),
        ("word-problems", "word-problems", "finished texts too", seen),
        ("http://127.0.0.1:8000", "vllm-server", "", hidden),
    ):
        [row] = json.loads(dise("models", model, "--json").out)["models"]
        facts = (row["name"], row["example"], row["trained_on"], row["scorers"])
        assert facts == (name, str(model), trained_on, scorers)
    assert "masks alone: written if generated, interleaved if given" in dise("models").out


def test_models_advises_a_type_of_weights(dise: Dise) -> None:
    [row] = json.loads(dise("models", "countdown", "--advise", "--json").out)["models"]
    ways = {way["option"]: way for way in row["advice"]}
    assert ways["--dtype float32"]["is_default"]
    assert all(way["memory"] > 0 and way["writing"] > 0 for way in ways.values())
    run = dise("models", "countdown", "--advise", columns=80)
    assert "128 tokens with" in run.out
    for option, way in ways.items():
        [line] = [line for line in run.out.splitlines() if option in line]
        assert f" {way['memory']:.1f} " in line
        assert ("(default)" in line) == way["is_default"]
    bare = dise("models", "--advise")
    assert (bare.code, bare.err) == (
        2, "dise: --advise tries one model; name it: dise models MODEL --advise\n"
    )  # fmt: skip


def test_models_tells_what_a_gguf_file_says_of_itself(dise: Dise, tmp_path: Path) -> None:
    """Of a diffusion model and of a judge; a file that is cut off is an error of one line."""
    judge = tiny_gguf.write(tmp_path / "judge.gguf")
    run = dise("models", judge)
    told = dict(line.strip().split(": ", 1) for line in run.out.splitlines() if ": " in line)
    assert (told["architecture"], told["layers"], told["context"]) == ("llama", "2", "128")
    assert (told["end token"], told["weights"]) == ("1 (</s>)", "F32 100%")
    read = GGUFReader(judge)
    assert told["would be loaded as"] == "float32"
    assert told["parameters"] == f"{sum(int(part.n_elements) for part in read.tensors):,}"

    tiny, file = MODELS["llada"], tmp_path / "model.gguf"
    convert(tiny, tiny.folder(tmp_path / tiny.name), file)
    [row] = json.loads(dise("models", file, "--json").out)["models"]
    assert row["file"]["architecture"] == tiny.name
    assert row["file"]["mask token"].startswith(f"{tiny.mask} (")
    judge.write_bytes(judge.read_bytes()[:900])
    cut = dise("models", judge)
    assert (cut.code, cut.err.count("\n")) == (1, 1)
    assert "cut off" in cut.err
