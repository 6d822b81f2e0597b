"""Experiments end to end on the embedded model: killed and resumed, reported, refused."""

from __future__ import annotations

import json
import math
import os
import random
import shlex
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dise_app.evaluation import choosing, graders, paper, questions
from dise_app.evaluation.journal import Journal
from dise_app.evaluation.questions import DATASETS
from dise_app.evaluation.scoring import Contenders
from dise_core import LLM, InputError, ScoringParams
from dise_core.errors import ModelError
from dise_core.plugins import installed_catalog
from tests.app.conftest import Run

Dise = Callable[..., Run]

SHORT = (
    "--dataset",
    "countdown-short",
    "--max-tokens",
    24,
    "--block-length",
    12,
    "--tokens-per-step",
    6,
)
SCORES = ("--score", "dise:full", "--score", "mc:response:num_samples=2")


def test_uncertainty_writes_a_journal_results_a_report_and_pictures(
    dise: Dise, tmp_path: Path
) -> None:
    run = dise(
        "eval",
        "uncertainty",
        *SHORT,
        *SCORES,
        "--limit",
        8,
        "--output",
        tmp_path,
        "--temperature",
        1.0,
    )
    assert run.code == 0, run.err
    assert run.out == (tmp_path / "report.md").read_text()
    figures = json.loads((tmp_path / "results.json").read_text())["figures"]
    assert set(figures) == {"dise:full", "mc:response:num_samples=2"}
    assert figures["dise:full"]["nfe"] == 1
    records = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()][
        1:
    ]
    assert len(records) == 8
    assert all(len(record["answers"]) == 5 for record in records)
    drawn = ("auroc_pooled", "auroc_per_question", "curves", "scores", "differences_1")
    for name in (*drawn, "risk_coverage", "reliability"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / f"{name}.svg").read_bytes().startswith(b"<?xml")
        assert f"]({name}.png)]({name}.svg)" in run.out
    rights = [answer["is_correct"] for record in records for answer in record["answers"]]
    assert f"Base rate: {sum(rights) / 40:.1%}".replace("%", " %") in run.out
    compared = json.loads((tmp_path / "results.json").read_text())["compared"]
    assert list(compared["mc:response:num_samples=2"]) == ["dise:full"]
    assert "**Nothing is concluded on ROC-AUC over all answers**: it takes 20 questions" in run.out
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["num_questions"] == 8
    assert manifest["versions"]["torch"]


def test_the_command_in_a_report_writes_the_same_report(dise: Dise, tmp_path: Path) -> None:
    data = tmp_path / "two words.jsonl"
    data.write_text('{"input": "83,18,75", "output": "10"}\n' * 2)
    args = ("eval", "best-of-n", *SHORT, *SCORES, "--n", 2, "--data", data, "--seed=3", "--json")
    first = dise(*args, "--output", tmp_path / "first")
    assert first.code == 0, first.err
    report = (tmp_path / "first" / "report.md").read_text()
    command = report.split("```")[1].replace("\\\n", " ")
    name, *words = shlex.split(command)
    assert (name, words[-2:]) == ("dise", ["--output", "FOLDER"])
    assert "--json" not in words
    again = dise(*words[:-1], tmp_path / "again")
    assert again.out == report
    assert (tmp_path / "again" / "results.json").read_text() == first.out


def test_one_question_whose_answers_are_all_the_same_has_a_report(
    dise: Dise, tmp_path: Path
) -> None:
    args = ("--limit", 1, "--temperature", 0.01, "--output", tmp_path, "--json")
    run = dise("eval", "uncertainty", *SHORT, "--score", "dise:full", *args)
    assert run.code == 0, run.err
    figures = json.loads(run.out)["figures"]["dise:full"]
    assert figures["ece"] is figures["brier"] is None
    assert figures["aurc"]["value"] in {0, 1}
    assert "| dise:full | 1.0 | - | - | - |" in (tmp_path / "report.md").read_text()


def test_a_second_run_computes_nothing_and_another_run_is_refused(
    dise: Dise, tmp_path: Path
) -> None:
    args = (
        "eval",
        "best-of-n",
        *SHORT,
        *SCORES,
        "--limit",
        3,
        "--n",
        2,
        "--output",
        tmp_path,
        "--json",
    )
    first = dise(*args)
    journal = (tmp_path / "journal.jsonl").read_bytes()
    again = dise(*args)
    assert (again.code, again.out) == (0, first.out)
    assert (tmp_path / "journal.jsonl").read_bytes() == journal
    assert {"greedy", "mean of N", "majority vote", "oracle", "dise:full"} <= set(
        json.loads(first.out)["figures"]
    )
    other = dise(*args, "--seed", 1)
    assert other.code == 2
    assert "holds another run" in other.err


def test_likelihood_finds_the_right_one_of_four_choices(dise: Dise, tmp_path: Path) -> None:
    scores = ("--score", "interleaved:response", "--score", "mc:response:num_samples=4")
    run = dise(
        "eval",
        "likelihood",
        "--dataset",
        "countdown-choice",
        "--limit",
        12,
        *scores,
        "--output",
        tmp_path,
        "--json",
    )
    figures = json.loads(run.out)["figures"]
    assert figures["interleaved:response"]["nfe"] == 2
    assert figures["mc:response:num_samples=4"]["accuracy"]["value"] > 0.4


def test_likelihood_agrees_with_rank(tmp_path: Path, dise: Dise) -> None:
    dise(
        "eval",
        "likelihood",
        "--dataset",
        "countdown-choice",
        "--limit",
        2,
        "--score",
        "dise:response",
        "--output",
        tmp_path,
    )
    loaded = questions.load("countdown-choice", limit=2)
    lines = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    records = {record["id"]: record for record in lines[1:]}
    for question in loaded.items:
        ranked = LLM("countdown").rank(
            question.prompt, question.candidates, ScoringParams(selector="response")
        )
        expected = {output.index: output.score.value for output in ranked.outputs}
        for index, candidate in enumerate(records[question.id]["candidates"]):
            assert candidate["dise:response"]["value"] == pytest.approx(expected[index], abs=1e-5)


def test_length_compares_controllers(dise: Dise, tmp_path: Path) -> None:
    args = (
        "--dataset",
        "countdown-short",
        "--limit",
        4,
        "--base-length",
        12,
        "--patience",
        1,
        "--max-iterations",
        3,
    )
    run = dise("eval", "length", *args, "--block-length", 12, "--output", tmp_path, "--json")
    assert run.code == 0, run.err
    figures = json.loads(run.out)["figures"]
    assert list(figures) == [
        "fixed, 12",
        "fixed, 15",
        "dise-flexible from 12, K = 1, D = 20",
        "daedal from 12",
    ]
    assert figures["fixed, 15"]["num_tokens"] == 15
    assert all(row["seconds"] > 0 for row in figures.values())
    assert (tmp_path / "length.png").exists()


GIVEN = (
    ("18+75=93,93-83=10<answer>18+75-83</answer><|end|><|end|>", 16, True),
    ("83-75=8,8+18=26<answer>83-75+18</answer>", 16, False),
    ("<answer>75-83+18</answer>", 32, True),
    ("<answer>75-83+18+1</answer><|end|>", 32, False),
    ("1+1=2", 32, False),
)
"""Answers to 83,18,75 -> 10, the length that each was written with, and whether it is right."""


def test_given_answers_are_graded_and_scored_in_groups(dise: Dise, tmp_path: Path) -> None:
    asked = {"question": "83,18,75 -> 10", "ground_truth": [[83, 18, 75], 10]}
    rows = [asked | {"response": text, "tokens": length} for text, length, _ in GIVEN]
    data = tmp_path / "answers.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    args = ("eval", "given", "--dataset", "countdown-answers", "--data", data, "--json")
    scores = ("--score", "dise:full", "--score", "mc:response:num_samples=2")
    run = dise(*args, *scores, "--by", "tokens", "--output", tmp_path / "run")
    assert run.code == 0, run.err
    figures = json.loads(run.out)["figures"]
    llm, params = LLM("countdown"), ScoringParams(selector="full")
    for length in (16, 32):
        of_kind: dict[bool, list[float]] = {True: [], False: []}
        for text, its_length, is_right in GIVEN:
            if its_length == length:
                plain = text.replace("<|end|>", "")
                [answer] = llm.score(asked["question"], plain, params)
                of_kind[is_right].append(answer.outputs[0].score.value)
        pairs = [r > w for r in of_kind[True] for w in of_kind[False]]
        found = figures[str(length)]["dise:full"]
        assert found["auroc"]["value"] == pytest.approx(sum(pairs) / len(pairs))
        assert (found["num_answers"], found["num_right"]) == (len(of_kind[False]) + 1, 1)
        values = of_kind[True] + of_kind[False]
        expected = statistics.median(math.exp(-value) for value in values)
        assert found["median_perplexity"] == pytest.approx(expected, rel=1e-4)
        assert found["auroc_log_likelihood"] is None
        likelihoods = figures[str(length)]["mc:response:num_samples=2"]["auroc_log_likelihood"]
        assert 0 <= likelihoods["value"] <= 1
    whole = dise(*args, "--score", "dise:full", "--output", tmp_path / "all")
    assert json.loads(whole.out)["figures"]["all"]["dise:full"]["num_right"] == 2
    wrong = dise(*args, "--by", "length", "--output", tmp_path / "none")
    assert (wrong.code, "countdown-0 of --data has no 'length'" in wrong.err) == (2, True)


@pytest.mark.parametrize(
    ("dataset", "row", "told"),
    [
        ("countdown-short", {"numbers": [1]}, 'a row is {"input": "44,19,7", "output": "56"}'),
        ("countdown-short", {"input": "1,2", "output": "three"}, "is none of 'countdown-short'"),
        ("gsm8k", {"question": "?", "answer": "many"}, 'a row is {"question": "...", "answer":'),
        ("math500", ["x"], 'a row is {"problem": "...", "answer": "..."}'),
    ],
)
def test_a_wrong_row_is_named_with_its_file_and_the_right_format(
    dise: Dise, tmp_path: Path, dataset: str, row: object, told: str
) -> None:
    good = {"input": "1,2", "output": "3", "question": "", "problem": "", "answer": "1 #### 3"}
    path = tmp_path / "mine.jsonl"
    path.write_text(f"{json.dumps(good)}\n{json.dumps(row)}\n")
    run = dise("eval", "uncertainty", "--dataset", dataset, "--data", path, "--output", tmp_path)
    assert run.code == 2
    assert "row 2 of mine.jsonl" in run.err
    assert told in run.err
    path.write_text(f"{json.dumps(good)}\n\n{{broken\n")
    run = dise("eval", "uncertainty", "--dataset", dataset, "--data", path, "--output", tmp_path)
    assert f"--data {path} is not JSON: line 3: " in run.err


@pytest.mark.parametrize("dataset", DATASETS)
def test_every_data_set_shows_a_row_that_it_reads(dataset: str) -> None:
    its = DATASETS[dataset]
    row = json.loads(its.row_format.replace("... ####", "1 ####"))
    assert its.question(row, 0).id


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ("uncertainty", "--dataset", "countdwn"),
            "unknown data set 'countdwn'. Did you mean 'countdown'? Known: arc-challenge",
        ),
        (
            ("uncertainty", "--dataset", "countdown-short", "--data", "/no/file.jsonl"),
            "cannot read --data /no/file.jsonl: No such file or directory; the public ones are at "
            "https://github.com/dllm-reasoning/d1/",
        ),
        (("uncertainty", *SHORT, "--score", "dize"), "unknown scorer 'dize'"),
        (
            ("uncertainty", *SHORT, "--score", "dise:full:k"),
            "a scorer is written SCORER:SELECTOR:KEY=VALUE",
        ),
        (("uncertainty", *SHORT, "--score", "dise", "--score", "dise"), "a scorer is named twice"),
        (
            ("uncertainty", "--dataset", "countdown-choice", "--limit", "1"),
            "its answers are ranked, not graded",
        ),
        (("likelihood", "--dataset", "countdown-short"), "has no candidates"),
    ],
)
def test_bad_input_is_one_line(
    dise: Dise, tmp_path: Path, args: tuple[object, ...], message: str
) -> None:
    run = dise("eval", *args, "--output", tmp_path)
    assert (run.code, run.out) == (2, "")
    assert message in run.err


def test_data_of_another_shape_is_named_by_row(dise: Dise, tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text('{"input": "1,2", "output": "3"}\n{"question": 1}\n')
    run = dise(
        "eval",
        "uncertainty",
        *SHORT,
        "--data",
        tmp_path / "data.jsonl",
        "--output",
        tmp_path / "out",
    )
    assert run.code == 2
    assert "row 2 of data.jsonl" in run.err


def test_a_hub_that_cannot_be_read_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import HfApi

    def refused(*_: object, **__: object) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(HfApi, "dataset_info", refused)
    with pytest.raises(
        ModelError, match=r"cannot read openai/gsm8k from the hub: no route. Or give --data FILE"
    ):
        questions.load("gsm8k")
    with pytest.raises(ModelError, match="It is gated: accept its terms"):
        questions.load("gpqa")


@pytest.mark.parametrize(
    ("name", "row", "prompt", "truth", "right"),
    [
        ("gsm8k", {"question": "Q?", "answer": "work #### 1,234"}, "Q?", 1234, -1),
        ("svamp", {"Body": "B.", "Question": "Q?", "Answer": 51.0}, "B. Q?", 51, -1),
        ("svamp-short", {"Body": "B", "Question": "Q?", "Answer": 51.0}, "B. Q?", 51, -1),
        ("svamp-short", {"Body": "", "Question": "Q?", "Answer": 51.0}, "Q?", 51, -1),
        ("math500", {"problem": "P", "answer": "\\frac{1}{2}"}, "P", "\\frac{1}{2}", -1),
        (
            "countdown",
            {"input": "83,18,75", "output": "10"},
            "[83, 18, 75]",
            [[83, 18, 75], 10],
            -1,
        ),
        (
            "arc-challenge",
            {
                "id": "x",
                "question": "Q?",
                "choices": {"text": ["a", "b"], "label": ["1", "2"]},
                "answerKey": "2",
            },
            "Question: Q?\nAnswer:",
            "2",
            1,
        ),
    ],
)
def test_rows_become_questions(
    name: str, row: dict[str, Any], prompt: str, truth: object, right: int
) -> None:
    question = DATASETS[name].question(row, 0)
    assert prompt in question.prompt
    assert (question.truth, question.right) == (truth, right)


def test_rows_of_the_hub_are_those_of_a_commit_that_the_source_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import datasets
    from huggingface_hub import HfApi

    asked = []

    def rows(*args: object, **options: object) -> list[dict[str, str]]:
        asked.append((*args, options["split"], options["revision"]))
        return [{"question": "Q?", "answer": "2 + 3 = <<2+3=5>>5\n#### 5"}]

    monkeypatch.setattr(
        HfApi, "dataset_info", lambda *_, revision: SimpleNamespace(sha=f"commit-of-{revision}")
    )
    monkeypatch.setattr(datasets, "load_dataset", rows)
    loaded = questions.load("gsm8k", revision="v1", shots=questions.Shots(1))
    assert asked == [("openai/gsm8k", "main", split, "commit-of-v1") for split in ("test", "train")]
    assert (
        loaded.source
        == "openai/gsm8k main test commit-of-v1; 1 shots of openai/gsm8k main train commit-of-v1"
    )
    [question] = loaded.items
    assert question.prompt.count("Q?") == 2
    assert "2 + 3 = 5\n\\boxed{5}\n\n" in question.prompt


def test_worked_examples_come_from_a_file(tmp_path: Path) -> None:
    arc = {
        "id": "x",
        "question": "Q?",
        "choices": {"text": ["a", "b"], "label": ["1", "2"]},
        "answerKey": "2",
    }
    svamp = {"Body": "B.", "Question": "Q?", "Answer": 51.0, "Equation": "( 50.0 + 1.0 )"}
    for name, row, example in (
        ("arc-challenge", arc, "Answer: b\n\n"),
        ("svamp", svamp, "( 50.0 + 1.0 ) = \\boxed{51}\n\n"),
        ("svamp-short", svamp, "B. Q?\n\n( 50.0 + 1.0 ) = 51\n\n"),
    ):
        file = tmp_path / f"{name}.jsonl"
        file.write_text(json.dumps(row) + "\n")
        [question] = questions.load(name, file, shots=questions.Shots(1, file)).items
        assert example in question.prompt
        with pytest.raises(InputError, match="holds 1 examples, fewer than --shots 2"):
            questions.load(name, file, shots=questions.Shots(2, file))
    with pytest.raises(InputError, match="has no worked examples"):
        questions.load("countdown", limit=1, shots=questions.Shots(1))


def test_the_papers_figures_stand_beside_its_own_cells() -> None:
    assert paper.length_figure_of("countdown", "fixed, 128") == 0.2617
    assert paper.length_figure_of("gsm8k", "fixed, 266") == 0.7680
    assert paper.length_figure_of("svamp", "dise-flexible from 512, K = 4, D = 20") == 0.8433
    assert paper.length_figure_of("svamp", "dise-flexible from 512, K = 2, D = 20") is None
    assert paper.figure_of(paper.AUROC, "math500", "dise:last-10", 256) == 0.634


def test_gpqa_choices_are_shuffled_and_the_right_one_is_known() -> None:
    row = {"Question": "Q?", "Correct Answer": "yes"} | {
        f"Incorrect Answer {i}": f"no {i}" for i in (1, 2, 3)
    }
    places = set()
    for number in range(20):
        question = DATASETS["gpqa"].question(row, number)
        assert f"{question.candidates[question.right].strip()} yes" in question.prompt
        places.add(question.right)
    assert places == {0, 1, 2, 3}


def test_scorers_of_an_experiment_share_forward_passes() -> None:
    llm = LLM("countdown")
    contenders = Contenders.of(["dise:full", "dise:last-10", "dise:response"], llm.catalog)
    calls: list[int] = []
    read = llm.predictor.read
    llm.predictor.read = lambda reads: (
        calls.append(len({r.token_ids.tobytes() for r in reads})),
        read(reads),
    )[1]  # type: ignore[method-assign]
    [text] = llm.planner.texts("1,2 -> 3", ["1+2=3"], ScoringParams())
    [outcome] = llm.engine.run([contenders.score(text)])
    assert calls == [1]
    assert {scores["nfe"] for scores in outcome.unwrap().values()} == {1}


def test_a_majority_vote_shares_ties() -> None:
    def record(*answers: tuple[str | None, bool]) -> dict[str, Any]:
        return {
            "greedy": {"is_correct": True},
            "answers": [
                {
                    "extracted": text,
                    "is_correct": right,
                    "scores": {"s": {"value": -1.0 - place, "nfe": 1}},
                }
                for place, (text, right) in enumerate(answers)
            ],
        }

    records = [
        record(("1", True), ("1", True), ("2", False)),
        record(("1", True), ("2", False), (None, False)),
        record((None, False), (None, False), (None, False)),
    ]
    figures = choosing.best_of_n(records, ["s"])
    assert figures["majority vote"]["value"] == pytest.approx((1 + 0.5 + 0) / 3)
    assert figures["oracle"]["value"] == pytest.approx(2 / 3)
    assert figures["s"]["value"] == pytest.approx(2 / 3)


def test_a_torn_line_is_cut_off_and_a_whole_one_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, {"model": "m"})
    journal.add({"id": "a", "value": 1})
    journal.close()
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"id": "b", "val')
    again = Journal(path, {"model": "m"})
    assert list(again.records) == ["a"]
    again.close()
    assert path.read_bytes() == whole
    with pytest.raises(InputError, match="its model is 'm', not 'n'"):
        Journal(path, {"model": "n"})


def test_a_text_with_line_separators_of_unicode_is_one_line_of_a_journal_and_of_a_data_set(
    tmp_path: Path,
) -> None:
    text = "one\u2028two\u2029three\x85four"
    journal = Journal(tmp_path / "journal.jsonl", {"model": "m"})
    journal.add({"id": "a", "text": text})
    journal.close()
    again = Journal(tmp_path / "journal.jsonl", {"model": "m"})
    assert again.records == {"a": {"id": "a", "text": text}}
    again.close()
    row = {"question": text, "answer": "#### 7"}
    data = tmp_path / "gsm8k.jsonl"
    data.write_text(json.dumps(row, ensure_ascii=False) + "\n", encoding="utf-8")
    [question] = questions.load("gsm8k", data).items
    assert text in question.prompt


def test_results_and_journal_name_the_grader_and_another_version_of_it_is_refused(
    dise: Dise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = ("eval", "best-of-n", *SHORT, *SCORES, "--limit", 1, "--n", 2, "--output", tmp_path)
    assert dise(*args).code == 0
    assert json.loads((tmp_path / "results.json").read_text())["grader"] == "countdown-robust-1"
    first = (tmp_path / "journal.jsonl").read_text().splitlines()[0]
    assert json.loads(first)["grader"] == "countdown-robust-1"
    assert (
        "its grader is 'countdown-robust-1', not 'countdown-d1-1'"
        in dise(*args, "--grader", "d1").err
    )

    class Stricter(graders.CountdownGrader):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.version = "countdown-robust-2"

    monkeypatch.setattr(questions, "CountdownGrader", Stricter)
    refused = dise(*args)
    assert refused.code == 2
    assert "its grader is 'countdown-robust-1', not 'countdown-robust-2'" in refused.err


RUNS = """
import os, sys, time, traceback
from pathlib import Path
from dise_app.evaluation import questions, report
from dise_app.evaluation.experiments import Sampled
from dise_app.evaluation.run import run
from dise_app.evaluation.scoring import Contenders
from dise_core import LLM, SamplingParams
from dise_core.testing import ToyPredictor
import numpy as np

class Slow(ToyPredictor):
    def __init__(self):
        super().__init__(max_length=200)
        self.tokenizer.encode = lambda text: np.array([ord(c) % 10 for c in text[:20]])
    def read(self, reads):
        time.sleep(0.002)
        return super().read(reads)

def experiment(folder):
    llm = LLM(Slow(), max_num_seqs=4)
    params = SamplingParams(max_tokens=6, temperature=1.0, n=3, block_length=6, seed=0)
    loaded = questions.load("countdown-short", limit=30)
    contenders = Contenders.of(["dise:full", "mc:response:num_samples=2"], llm.catalog)
    sampled = Sampled(llm, loaded, contenders, params, "robust")
    report.uncertainty(sampled, run(sampled, folder, lambda count: None), folder)

for line in sys.stdin:
    if (child := os.fork()) == 0:
        try:
            experiment(Path(line.strip()))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    print(child, flush=True)
    print(os.waitpid(child, 0)[1], flush=True)
"""


class Runs:
    """Runs of one experiment, each in a process of its own that begins with all imports done."""

    def __init__(self) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process: Any = subprocess.Popen([sys.executable, "-c", RUNS], **pipes)

    def start(self, folder: Path) -> int:
        """Begin a run into the folder, and return its process."""
        self._process.stdin.write(f"{folder}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def wait(self) -> int:
        """Return how the run ended, as os.waitpid tells it."""
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End the process that begins them."""
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


@pytest.fixture
def runs() -> Iterator[Runs]:
    begun = Runs()
    yield begun
    begun.close()


def test_killed_at_twenty_random_points_a_run_ends_with_the_same_bytes_and_computes_nothing_twice(
    tmp_path: Path, runs: Runs
) -> None:
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    journal = killed / "journal.jsonl"
    runs.start(straight)
    assert runs.wait() == 0
    chance = random.Random(0)
    seen: dict[str, str] = {}
    num_killed = 0
    for _ in range(20):
        wanted = min(_num_lines(journal) + chance.randint(0, 2), 31)
        process, end = runs.start(killed), time.monotonic() + 60
        while _num_lines(journal) < wanted and time.monotonic() < end:
            time.sleep(0.001)
        time.sleep(chance.random() * 0.02)
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        num_killed += runs.wait() == signal.SIGKILL
        for line in journal.read_bytes().split(b"\n")[:-1] if journal.exists() else []:
            record = json.loads(line)
            name = record.get("id", "key")
            assert seen.setdefault(name, line.decode()) == line.decode()
    assert num_killed >= 15
    runs.start(killed)
    assert runs.wait() == 0
    assert (killed / "results.json").read_bytes() == (straight / "results.json").read_bytes()
    assert (killed / "report.md").read_bytes() == (straight / "report.md").read_bytes()
    lines = journal.read_text().splitlines()
    assert len(lines) == len({json.loads(line).get("id") for line in lines}) == 31


def _num_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_the_catalog_names_every_default_contender() -> None:
    from dise_app.cli.evaluate import CHOICE_SCORES, SCORES

    for specification in {*SCORES, *CHOICE_SCORES}:
        [contender] = Contenders.of([specification], installed_catalog()).each
        assert contender.label == specification


def test_an_experiment_runs_dreams_sampler(dise: Dise, tmp_path: Path) -> None:
    sampler = (
        "--unmasking",
        "entropy",
        "--unmasking-setting",
        "alg_temp=0.1",
        "--steps",
        6,
        "--eps",
        0.001,
    )
    drawing = ("--temperature", 0.2, "--top-p", 0.95, "--tempered-confidence", "--no-chat")
    asked = ("--dataset", "countdown-short", "--max-tokens", 24, "--block-length", 24, "--limit", 4)
    run = dise("eval", "uncertainty", *asked, *sampler, *drawing, *SCORES, "--output", tmp_path)
    assert run.code == 0, run.err
    params = json.loads((tmp_path / "manifest.json").read_text())["settings"]["params"]
    assert (params["unmasking"], params["unmasking_settings"], params["steps"]) == (
        "entropy",
        {"alg_temp": 0.1},
        6,
    )
    assert (params["eps"], params["top_p"], params["tempered_confidence"]) == (0.001, 0.95, True)
    assert json.loads((tmp_path / "manifest.json").read_text())["chat"] is False
