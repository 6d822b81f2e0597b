"""examples/real_weights passes whole on the embedded models, goes on where it was killed, and its
report has figures that others compute, and nobody's name.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from dise_adapters.embedded import EmbeddedPredictor
from tests import reference_dream
from tests.pages import ROOT
from tests.reference_llada import ReferenceLLaDA, naive_decode

SCRIPT = ROOT / "examples/real_weights/run.sh"
os.environ["PYTHON"] = sys.executable  # the script takes `python`, where users have it
EMBEDDED = Path(EmbeddedPredictor.folder.__func__.__globals__["__file__"]).parent  # type: ignore[attr-defined]
FULL, BLOCKS = "countdown", "countdown_blocks"
SAMPLER = ("--section", "sampler", "--limit", "10")

Fields = Mapping[str, Any]

pytestmark = pytest.mark.timeout(900)


def started(*words: object) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    command = ["bash", str(SCRIPT), *map(str, words)]
    return subprocess.Popen(command, text=True, start_new_session=True, **pipes)  # type: ignore[call-overload, no-any-return]


def ran(*words: object) -> tuple[int, str]:
    process = started(*words)
    out, _ = process.communicate()
    return process.returncode, out


def models_in(out: Path) -> Fields:
    text = (out / "report.md").read_text()
    found: Fields = json.loads(text.partition("```json\n")[2].partition("```")[0])
    return found["models"]  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("real") / "found"
    ran("--embedded", "--out", folder, *SAMPLER)
    code, said = ran("--embedded", "--out", folder)
    assert (code, said.count(" done\n")) == (0, 16), said
    return folder


def journal(out: Path, model: str, run: str) -> list[Any]:
    [file] = (out / model / run).glob("*/journal.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()[1:]]


def test_the_report_says_of_every_section_what_it_would_show_and_names_nobody(out: Path) -> None:
    text, page = (out / "report.md").read_text(), (SCRIPT.parent / "README.md").read_text()
    sections = [line.split("|") for line in page.splitlines() if line.startswith("| `")]
    assert len(sections) == 8
    for _, name, about, _ in sections:
        assert name.strip("` ") in ran("--list")[1]
        assert text.count(f"On real weights: {about.strip()}") == 2
    assert "not finished" not in text
    for name in (str(EMBEDDED), str(out.parent), str(Path.home()) + "/", socket.gethostname()):
        assert name not in text
    assert f"/{getpass.getuser()}/" not in text


@pytest.mark.parametrize("model", [FULL, BLOCKS])
def test_loading_tells_digests_special_tokens_and_memory(out: Path, model: str) -> None:
    found, folder = models_in(out)[model]["load"], EMBEDDED / model
    config = json.loads((folder / "config.json").read_text())
    digests = {file["name"]: file["sha256"] for file in found["files"]}
    assert digests == {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.iterdir()
        if file.is_file()
    }
    assert found["mask"] == config["mask_token_id"]
    assert str(config["eos_token_id"]) in found["ends"]
    assert found["block_length"] == config.get("block_size")
    assert found["chat of 12+3"] == "<|user|>12+3<|assistant|>"
    assert (folder / "model.safetensors").stat().st_size < found["peak_bytes"] < 2**32


def test_answers_are_those_of_the_authors_loops_and_of_an_independent_one(out: Path) -> None:
    for model in (FULL, BLOCKS):
        pairs = models_in(out)[model]["sampler"]["prompts"]
        assert [pair["is_equal"] for pair in pairs] == [True] * 10
    reference = ReferenceLLaDA(EMBEDDED / FULL)
    for number in range(2):
        answer = json.loads((out / FULL / "sampler" / f"answer-{number}.json").read_text())
        decoded = naive_decode(reference, answer["prompt"], 32, 16, tokens_per_step=1)
        assert decoded == answer["prompt"] + answer["response"]


def test_scores_are_those_of_an_independent_pass(out: Path) -> None:
    for model in (FULL, BLOCKS):
        assert models_in(out)[model]["scores"]["largest_difference"] < 1e-4
    reference = ReferenceLLaDA(EMBEDDED / FULL)
    for text in models_in(out)[FULL]["scores"]["texts"]:
        ids, start = [*text["prompt"], *text["response"], *text["end"]], len(text["prompt"])
        logprobs = torch.log_softmax(reference.logits(ids), dim=-1)
        places = range(start, start + len(text["response"]))
        expected = sum(float(logprobs[place, ids[place]]) for place in places) / len(places)
        assert text["dise"]["feeding"] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("model", [FULL, BLOCKS])
def test_figures_of_drawn_answers_are_counted_again(out: Path, model: str) -> None:
    found, records = models_in(out)[model], journal(out, model, "answers")
    answers = [answer for record in records for answer in record["answers"]]
    for label, row in found["which-scorer"]["rows"].items():
        if label != "length":
            assert row["value"] == pytest.approx(area(answers, label))
    for label, row in found["roc-auc"]["rows"].items():
        assert row["low"] <= row["value"] == found["which-scorer"]["rows"][label]["value"]
    for label, row in found["best-of-n"]["rows"].items():
        best = [max(each["answers"], key=lambda one: score(one, label)) for each in records]
        num_right = sum(answer["is_correct"] for answer in best)
        assert row["value"] == pytest.approx(num_right / len(records))


def score(answer: Fields, label: str) -> float:
    return float(answer["scores"][label]["value"])


def area(answers: Sequence[Fields], label: str) -> float:
    """Return how often a right answer scores above a wrong one; a tie counts a half."""
    right = [score(answer, label) for answer in answers if answer["is_correct"]]
    wrong = [score(answer, label) for answer in answers if not answer["is_correct"]]
    pairs = [(one > other) + (one == other) / 2 for one in right for other in wrong]
    return sum(pairs) / len(pairs)


@pytest.mark.parametrize("model", [FULL, BLOCKS])
def test_shares_of_choices_and_lengths_are_counted_again(out: Path, model: str) -> None:
    found, records = models_in(out)[model], journal(out, model, "candidates")
    for label, row in found["likelihood"]["rows"].items():
        values = [[each[label]["value"] for each in record["candidates"]] for record in records]
        hits = [
            record["right"] == one.index(max(one))
            for record, one in zip(records, values, strict=True)
        ]
        assert row["value"] == pytest.approx(sum(hits) / len(hits))
    rows = found["lengths"]["rows"]
    assert {*rows} == {"fixed", "dise-flexible"}
    assert all(0.5 <= row["low"] <= row["value"] <= row["high"] for row in rows.values())


def test_a_killed_section_goes_on_and_a_done_one_is_not_done_again(tmp_path: Path) -> None:
    words = ("--embedded", EMBEDDED / FULL, "--out", tmp_path, *SAMPLER)
    process, folder = started(*words), tmp_path / FULL / "sampler"
    while len(done := [*folder.glob("answer-*.json")]) < 3:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (folder / "result.json").exists()
    before = {file: file.stat().st_mtime_ns for file in done}
    assert ran(*words) == (0, "countdown sampler done\n")
    files = {file: file.stat().st_mtime_ns for file in folder.glob("*.json")}
    assert before.items() <= files.items()
    assert models_in(tmp_path)[FULL]["sampler"]["summary"].startswith("10 of 10")
    assert ran(*words)[0] == 0
    assert {file: file.stat().st_mtime_ns for file in folder.glob("*.json")} == files


def test_time_that_is_over_leaves_the_rest_and_a_failure_is_reported(tmp_path: Path) -> None:
    short = ("--embedded", EMBEDDED / BLOCKS, "--out", tmp_path, "--minutes", "0")
    assert ran(*short, "--section", "scores") == (3, "countdown_blocks scores unfinished\n")
    assert [file.name for file in (tmp_path / BLOCKS / "scores").glob("*.json")] == ["text-0.json"]
    missing, out = tmp_path / "anna" / "weights", tmp_path / "out"
    missing.mkdir(parents=True)
    code, said = ran("--out", out, missing, "--section", "load")
    assert (code, said) == (1, "weights load failed\n")
    text = (out / "report.md").read_text()
    assert "config.json" in models_in(out)["weights"]["load"]["failure"]
    assert str(tmp_path) not in text
    assert "anna" not in text


def test_dream_and_tiny_a2d_write_what_their_authors_loops_write(tmp_path: Path) -> None:
    dream = reference_dream.write_checkpoint(tmp_path / "dream", max_position_embeddings=512)
    blocks = shutil.copytree(EMBEDDED / BLOCKS, tmp_path / "blocks")
    fields = json.loads((blocks / "config.json").read_text())
    fields |= {"architectures": ["A2DQwen3LMHeadModel"], "model_type": "a2d-qwen3"}
    (blocks / "config.json").write_text(json.dumps(fields))
    for words in ((dream,), (blocks, "--embedded", "--block-size", "4")):
        code, said = ran(*words, "--out", tmp_path / "out", *SAMPLER)
        folder = tmp_path / "out" / words[0].name
        assert code == 0, (said, (folder / "sampler" / "log").read_text())
        summary = models_in(tmp_path / "out")[words[0].name]["sampler"]["summary"]
        assert summary.startswith("10 of 10")


def test_without_the_real_data_the_embedded_questions_are_asked_and_the_report_says_so(
    tmp_path: Path,
) -> None:
    words = (EMBEDDED / FULL, "--out", tmp_path, "--section", "likelihood", "--limit", "4")
    assert ran(*words) == (0, "countdown likelihood done\n")
    summary = models_in(tmp_path)[FULL]["likelihood"]["summary"]
    assert summary.startswith("for want of arc-challenge: countdown-choice (drawn, seed 0), 4 que")
