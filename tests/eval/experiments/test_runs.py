"""Experiments end to end on the embedded model: killed and resumed, reported, refused."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import random
import re
import shlex
import signal
import statistics
from collections.abc import Sequence
from functools import reduce
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dise_app.files.lines import encoded
from dise_core import LLM, InputError, Read, Reading, SamplingParams, ScoringParams
from dise_core.errors import ModelError
from dise_core.plugins.discovery import installed_catalog
from dise_eval.datasets import dataset, questions
from dise_eval.datasets.own import dataset_of
from dise_eval.experiments import run as running
from dise_eval.experiments.experiments import Sampled
from dise_eval.experiments.journal import Journal
from dise_eval.experiments.run import key_of, run
from dise_eval.experiments.scoring import Contenders, names_in
from dise_eval.graders import GRADERS, CountdownGrader, Mode
from dise_eval.reports.page import write
from dise_eval.reports.uncertainty import uncertainty
from dise_strategies.scorers.dise import DiSE
from dise_strategies.selectors.counted import LastK
from tests import reference_diffusion_gemma
from tests.ascii_model import AsciiPredictor
from tests.commands import Dise
from tests.guests import with_guests
from tests.jsonlines import records_of, written
from tests.recorded import Recorded

SHORT = shlex.split(
    "--dataset countdown-short --max-tokens 24 --block-length 12 --tokens-per-step 6"
)
SCORES = shlex.split("--score dise:full --score mc:response:num_samples=2")
DRAWN = "uncertainty --dataset countdown-short --limit 1"
CHOICES = shlex.split("eval likelihood --dataset countdown-choice")


def test_uncertainty_writes_a_journal_results_a_report_and_pictures(
    dise: Dise, tmp_path: Path
) -> None:
    long = ("--max-tokens", 36, "--tokens-per-step", 2)
    args = (*long, "--limit", 20, "--output", tmp_path, "--temperature", 2.0)
    run = dise("eval", "uncertainty", *SHORT, *SCORES, *args)
    assert run.code == 0, run.err
    report = (tmp_path / "report.md").read_text()
    results = json.loads((tmp_path / "results.json").read_text())
    assert set(results["figures"]) == {"dise:full", "mc:response:num_samples=2", "length"}
    assert results["figures"]["dise:full"]["nfe"] == 1
    assert list(results["compared"]["mc:response:num_samples=2"]) == ["dise:full"]
    _, *records = records_of(tmp_path / "journal.jsonl")
    assert [len(record["answers"]) for record in records] == [5] * 20
    lengths = [[len(answer["text"]) for answer in record["answers"]] for record in records]
    rights = [
        record["answers"][np.argmin(row)]["is_correct"]
        for record, row in zip(records, lengths, strict=True)
    ]
    assert results["figures"]["length"]["best_of_n"]["value"] == np.mean(rights)
    assert dise("eval", "uncertainty", *SHORT, *args).out == run.out
    again = (tmp_path / "report.md").read_text()
    assert again.count("dise:full") == report.count("dise:full") - 1, "but for the command"
    for name in ("auroc_pooled", "auroc_per_question", "differences"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert f"]({name}.png)" in report
    rights = [answer["is_correct"] for record in records for answer in record["answers"]]
    assert f"| all | 100 | {sum(rights) / 100:.3f} [" in report
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["num_questions"] == 20
    assert manifest["settings"]["params"]["temperature"] == 2.0
    assert manifest["versions"]["torch"]


def test_the_terminal_shows_four_columns_and_where_the_others_are(
    dise: Dise, tmp_path: Path
) -> None:
    """Of 30 questions a ROC-AUC with its interval; of two none of both, but a sentence."""
    rows = [{"prompt": "83,18,75 -> 10", "answer": number % 2} for number in range(30)]
    rows = [row | {"response": str(row["answer"] * (at % 3 > 0))} for at, row in enumerate(rows)]
    shown = list[list[str]]()
    for few, count in ((rows, 30), (rows[26:28], 2)):
        data, output = written(tmp_path / f"{count}.jsonl", *few), tmp_path / str(count)
        args = ("eval", "given", "--dataset", data, "--grader", "number", "--output", output)
        run = dise(*args, "--score", "dise:full", "--score", "mc:response", columns=80)
        assert run.code == 0, run.err
        assert max(len(line) for line in run.out.splitlines() if str(output) not in line) <= 80
        assert run.out.endswith(f"\n\nAll else: {output}/report.md\n")
        shown.append([line.strip() for line in run.out.splitlines()])
        assert f"{shown[-1][0]}" in (output / "report.md").read_text()
    assert re.fullmatch(r"score +right +ROC-AUC +n", shown[0][2])
    assert re.fullmatch(r"dise:full +83.3% +0\.\d{3} \[0\.\d{3}, 0\.\d{3}\] +30", shown[0][3])
    assert re.fullmatch(r"score +right +n", shown[1][2])
    assert re.fullmatch(r"dise:full +50.0% +2", shown[1][3])
    sentence = " ".join(shown[1][6:10])
    assert sentence.startswith("1 of 2 answers to 2 questions are right: too few for a ROC-AUC, an")
    figures = json.loads((tmp_path / "2" / "results.json").read_text())["figures"]["all"]
    assert figures["dise:full"]["auroc"] == dict.fromkeys(("value", "low", "high")) | {
        "num_questions": 2
    }


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
    dise(*words[:-1], tmp_path / "again")
    assert (tmp_path / "again" / "report.md").read_text() == report
    assert (tmp_path / "again" / "results.json").read_text() == first.out
    ways = {"greedy", "mean of N", "majority vote", "oracle", "dise:full"}
    assert ways < set(json.loads(first.out)["figures"])


def test_one_question_whose_answers_are_all_the_same_has_a_report(
    dise: Dise, tmp_path: Path
) -> None:
    args = ("--limit", 1, "--temperature", 0.01, "--output", tmp_path, "--json")
    run = dise("eval", "uncertainty", *SHORT, "--score", "dise:full", *args)
    assert run.code == 0, run.err
    figures = json.loads(run.out)["figures"]["dise:full"]
    assert figures["ece"] is figures["brier"] is None
    assert figures["aurc"]["value"] in {0, 1}
    assert "0 of 5 answers are right" in (tmp_path / "report.md").read_text()


@pytest.mark.parametrize("ending", [(), ("--finished",)])
def test_likelihood_scores_candidates_as_given_texts_and_finds_the_right_one_of_four(
    dise: Dise, tmp_path: Path, ending: tuple[str, ...]
) -> None:
    """With --finished an end follows each. No run goes on in a folder of the other kind."""
    scores = shlex.split("--score dise:response --score mc:response:num_samples=4")
    line = (*CHOICES, "--limit", 12, *scores, "--output", tmp_path, "--json")
    figures = json.loads(dise(*line, *ending).out)["figures"]
    assert figures["dise:response"]["nfe"] == 1
    assert ending or figures["mc:response:num_samples=4"]["accuracy"]["value"] > 0.4
    records = {record["id"]: record for record in records_of(tmp_path / "journal.jsonl")[1:]}
    llm, params = LLM("countdown"), ScoringParams(selector="response")
    for question in questions.load("countdown-choice", limit=2).items:
        prompts = [question.prompt] * len(question.candidates)
        answers = llm.score(prompts, question.candidates, params, finished=bool(ending))
        values = [each["dise:response"]["value"] for each in records[question.id]["candidates"]]
        expected = [answer.outputs[0].score.value for answer in answers]
        assert values == pytest.approx(expected, abs=1e-5)
    assert "finished" in dise(*line, *(() if ending else ("--finished",))).err


def test_likelihood_of_a_model_of_canvases_is_what_transformers_computes(
    dise: Dise, tmp_path: Path
) -> None:
    """Without --score by its own usual scorers: none is about masks, or a prompt's tokens."""
    folder, choices = reference_diffusion_gemma.write(tmp_path / "model"), ["blue", "of cheese"]
    data = written(tmp_path / "mine.jsonl", {"prompt": "Sky?", "choices": choices, "answer": "A"})
    line = ("eval", "likelihood", "--dataset", data, "--model", folder, "--json")
    run = dise(*line, "--output", tmp_path / "run")
    assert set(json.loads(run.out)["figures"]) == {
        "dise:response", "loo:response", "interleaved:response"
    }  # fmt: skip
    [record] = records_of(tmp_path / "run" / "journal.jsonl")[1:]
    tokenizer = LLM(str(folder)).predictor.tokenizer
    prompt = tokenizer.encode_chat([{"role": "user", "content": "Sky?"}])
    for text, scores in zip(choices, record["candidates"], strict=True):
        ids, whole = tokenizer.encode(text), np.full(reference_diffusion_gemma.CANVAS, 0)
        whole[: len(ids) + 1] = [*ids, reference_diffusion_gemma.TURN_END]
        reference = reference_diffusion_gemma.Reference(folder)
        rows = reference.logprobs(np.append(prompt, whole), len(prompt))
        expected = rows[np.arange(len(ids)), ids].mean()
        assert scores["dise:response"]["value"] == pytest.approx(expected, abs=1e-4)
    answers = written(tmp_path / "given.jsonl", {"prompt": "2?", "answer": 2, "response": "2"})
    of_given = ("--dataset", answers, "--grader", "number", "--output", tmp_path / "given")
    settings = json.loads(dise("eval", "given", *of_given, *line[4:]).out)["settings"]
    names = ("dise", "loo", "interleaved")
    assert settings["scorers"] == [f"{name}:response-text" for name in names]
    masks = dise(*line, "--output", tmp_path / "masks", "--score", "mc")
    assert "scorer 'mc' is about masks" in masks.err
    prompts = dise(*line, "--output", tmp_path / "prompts", "--score", "dise:prompt-last-2")
    assert 'take a selector of response tokens, such as "response-text"' in prompts.err


def test_answers_of_a_model_of_canvases_are_drawn_by_its_own_policy(
    dise: Dise, tmp_path: Path
) -> None:
    """Its temperatures are its own, and no usual score is about masks or a prompt's tokens."""
    folder = reference_diffusion_gemma.write(tmp_path / "model")
    data = written(tmp_path / "mine.jsonl", {"prompt": "2?", "answer": 2})
    line = ("--dataset", data, "--grader", "number", "--model", folder, "--max-tokens", 8)
    setting = ("--unmasking-setting", "max_denoising_steps=3")
    run = dise("eval", "uncertainty", *line, *setting, "--output", tmp_path / "run", "--json")
    settings = json.loads(run.out)["settings"]
    assert settings["params"]["unmasking"] == "entropy-bound-renoise"
    assert settings["params"]["temperature"] == 0
    assert {score.partition(":")[0] for score in settings["scorers"]} == {
        "dise", "loo", "interleaved", "written"
    }  # fmt: skip
    [record] = records_of(tmp_path / "run" / "journal.jsonl")[1:]
    assert len({answer["text"] for answer in record["answers"]}) > 1
    warm = dise("eval", "uncertainty", *line, "--output", tmp_path / "warm", "--temperature", 0.7)
    assert "draws at temperatures of its own" in warm.err


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
    data = written(tmp_path / "answers.jsonl", *rows * 10)
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
        assert (found["num_answers"], found["num_right"]) == (10 * len(of_kind[False]) + 10, 10)
        values = of_kind[True] + of_kind[False]
        expected = statistics.median(math.exp(-value) for value in values)
        assert found["median_perplexity"] == pytest.approx(expected, rel=1e-4)
        assert found["auroc_log_likelihood"] is None
        likelihoods = figures[str(length)]["mc:response:num_samples=2"]["auroc_log_likelihood"]
        assert 0 <= likelihoods["value"] <= 1
    whole = dise(*args, "--score", "dise:full", "--output", tmp_path / "all")
    assert json.loads(whole.out)["figures"]["all"]["dise:full"]["num_right"] == 20
    unknown = dise(*args, "--score", "written", "--output", tmp_path / "unknown")
    assert unknown.code == 2
    assert "written reads how a text was written" in unknown.err
    wrong = dise(*args, "--by", "length", "--output", tmp_path / "none")
    assert (wrong.code, "countdown-0 of --data has no 'length'" in wrong.err) == (2, True)
    data = written(tmp_path / "numbers.jsonl", {"prompt": "1,2 -> 3", "answer": 3, "response": 3})
    wrong = dise("eval", "given", "--dataset", data, "--grader", "number", "--output", tmp_path)
    assert (wrong.code, "'response' must be a text, not 3" in wrong.err) == (2, True)


@pytest.mark.parametrize(
    ("dataset", "row", "told"),
    [
        ("countdown-short", {"numbers": [1]}, 'a row is {"input": "44,19,7", "output": "56"}'),
        ("countdown-short", {"input": "1,2", "output": "three"}, "does not fit 'countdown-short'"),
        ("gsm8k", {"question": "?", "answer": "many"}, 'a row is {"question": "...", "answer":'),
        ("math500", {"x": 1}, 'a row is {"problem": "...", "answer": "..."}'),
    ],
)
def test_a_wrong_row_is_named_with_its_file_and_the_right_format(
    tmp_path: Path, dataset: str, row: object, told: str
) -> None:
    good = {"input": "1,2", "output": "3", "question": "", "problem": "", "answer": "1 #### 3"}
    path = written(tmp_path / "mine.jsonl", good, row)
    with pytest.raises(InputError, match=f"line 2 of mine.jsonl .*{re.escape(told)}"):
        questions.load(dataset, path)


@pytest.mark.parametrize("name", installed_catalog().datasets)
def test_every_data_set_shows_a_row_that_it_reads(name: str) -> None:
    row = json.loads(dataset_of(name).row_format.replace("... ####", "1 ####"))
    assert dataset_of(name).problem(row, 0).id


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "uncertainty --dataset countdown-short --data /no/file.jsonl",
            "cannot read --data /no/file.jsonl: No such file or directory; the public ones are at "
            "https://github.com/dllm-reasoning/d1/",
        ),
        (f"{DRAWN} --score dize", "unknown scorer 'dize'"),
        (f"{DRAWN} --score dise:full:k", "unknown selector 'full:k'. Did you mean 'full'?"),
        (f"{DRAWN} --score dise --score dise", "a scorer is named twice"),
        (
            f"{DRAWN} --seed 1",
            "holds a run that does not say its model, and this run has model='countdown'",
        ),
        ("likelihood --dataset countdown-short", "has no candidates"),
    ],
)
def test_bad_input_is_one_line(dise: Dise, tmp_path: Path, line: str, message: str) -> None:
    written(tmp_path / "journal.jsonl", {"experiment": "sampled"})
    run = dise("eval", *line.split(), "--output", tmp_path)
    assert (run.code, run.out) == (2, "")
    assert message in run.err


def test_a_hub_that_cannot_be_read_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import HfApi

    def refused(*_: object, **__: object) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(HfApi, "dataset_info", refused)
    with pytest.raises(
        ModelError,
        match=r"cannot read openai/gsm8k from the hub: no route\. Or get its split 'test' as "
        "JSON lines, and give it with --data FILE",
    ):
        questions.load("gsm8k")
    with pytest.raises(ModelError, match="It is gated: accept its terms"):
        questions.load("gpqa")


COUNTDOWN_ROW = {"input": "83,18,75", "output": "10"}
ARC_CHOICES = {"text": ["a", "b"], "label": ["1", "2"]}
ARC_ROW = {"id": "x", "question": "Q?", "choices": ARC_CHOICES, "answerKey": "2"}


@pytest.mark.parametrize(
    ("name", "row", "prompt", "truth", "right"),
    [
        ("gsm8k", {"question": "Q?", "answer": "work #### 1,234"}, "Q?", 1234, -1),
        ("svamp", {"Body": "B.", "Question": "Q?", "Answer": 51.0}, "B. Q?", 51, -1),
        ("svamp-short", {"Body": "B", "Question": "Q?", "Answer": 51.0}, "B. Q?", 51, -1),
        ("svamp-short", {"Body": "", "Question": "Q?", "Answer": 51.0}, "Q?", 51, -1),
        ("math500", {"problem": "P", "answer": "\\frac{1}{2}"}, "P", "\\frac{1}{2}", -1),
        ("countdown", COUNTDOWN_ROW, "[83, 18, 75]", [[83, 18, 75], 10], -1),
        ("arc-challenge", ARC_ROW, "Question: Q?\nAnswer:", "2", 1),
    ],
)
def test_rows_become_questions(
    name: str, row: dict[str, Any], prompt: str, truth: object, right: int
) -> None:
    question = dataset_of(name).problem(row, 0)
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
    both = [f"openai/gsm8k main {split} commit-of-v1" for split in ("test", "train")]
    assert loaded.source == "; 1 shots of ".join(both)
    [question] = loaded.items
    assert question.prompt.count("Q?") == 2
    assert "2 + 3 = 5\n\\boxed{5}\n\n" in question.prompt


def test_worked_examples_come_from_a_file(tmp_path: Path) -> None:
    svamp = {"Body": "B.", "Question": "Q?", "Answer": 51.0, "Equation": "( 50.0 + 1.0 )"}
    for name, row, example in (
        ("arc-challenge", ARC_ROW, "Answer: b\n\n"),
        ("svamp", svamp, "( 50.0 + 1.0 ) = \\boxed{51}\n\n"),
        ("svamp-short", svamp, "B. Q?\n\n( 50.0 + 1.0 ) = 51\n\n"),
    ):
        file = written(tmp_path / f"{name}.jsonl", row)
        [question] = questions.load(name, file, shots=questions.Shots(1, file)).items
        assert example in question.prompt
        with pytest.raises(InputError, match="holds 1 examples, fewer than --shots 2"):
            questions.load(name, file, shots=questions.Shots(2, file))
    with pytest.raises(InputError, match="has no worked examples"):
        questions.load("countdown", limit=1, shots=questions.Shots(1))


def test_scorers_of_an_experiment_share_forward_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = LLM("countdown")
    contenders = Contenders.of(["dise:full", "dise:last-10", "dise:response"], llm.catalog)
    seen = Recorded(llm.predictor.read)
    monkeypatch.setattr(llm.predictor, "read", seen)
    [text] = llm.planner.texts("1,2 -> 3", ["1+2=3"], ScoringParams())
    [outcome] = llm.engine.run([contenders.score(text)])
    assert seen.num_texts == 1
    assert {scores["nfe"] for scores in outcome.unwrap().values()} == {1}


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
        "grader='countdown-robust-1', and this run has grader='countdown-d1-1'"
        in dise(*args, "--grader", "d1").err
    )

    def stricter(truth: object, mode: Mode) -> CountdownGrader:
        grader = CountdownGrader.of(truth, mode)
        grader.version = "countdown-robust-2"
        return grader

    monkeypatch.setattr(dataset, "GRADERS", {**GRADERS, "countdown": stricter})
    refused = dise(*args)
    assert refused.code == 2
    assert (
        "grader='countdown-robust-1', and this run has grader='countdown-robust-2'" in refused.err
    )


class Mortal(AsciiPredictor):
    """A model whose process is killed at its pass of that number."""

    def __init__(self, num_passes: int | None) -> None:
        super().__init__(max_length=200)
        self._num_passes = num_passes

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        if len(self.batches) == self._num_passes:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().read(reads)


def mortal_run(folder: Path, num_passes: int | None) -> None:
    llm = LLM(Mortal(num_passes), max_num_seqs=4)
    params = SamplingParams(max_tokens=6, temperature=1.0, n=3, block_length=6, seed=0)
    specifications = ["dise:full", "mc:response:num_samples=2", "written:response:signal=margin"]
    contenders = Contenders.of(specifications, llm.catalog)
    loaded = questions.load("countdown-short", limit=30)
    sampled = Sampled(llm, loaded, contenders, params, "robust")
    records = run(sampled, folder, lambda count: None)
    write(folder, sampled, uncertainty(sampled, records))


def begun(folder: Path, num_passes: int | None = None) -> BaseProcess:
    """A run into the folder, in a process of its own that begins with all imports done."""
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload([__name__])
    process = server.Process(target=mortal_run, args=(folder, num_passes))
    process.start()
    return process


def ended(process: BaseProcess) -> int | None:
    process.join()
    return process.exitcode


def test_killed_at_random_passes_a_run_ends_with_the_same_bytes_and_computes_nothing_twice(
    tmp_path: Path,
) -> None:
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    journal = killed / "journal.jsonl"
    assert ended(begun(straight)) == 0
    chance = random.Random(0)
    seen: dict[str, str] = {}
    num_killed = 0
    while ended(begun(killed, chance.randint(10, 40))) == -signal.SIGKILL:
        num_killed += 1
        for line in journal.read_bytes().splitlines() if journal.exists() else []:
            name = json.loads(line).get("id", "key")
            assert seen.setdefault(name, line.decode()) == line.decode()
        if journal.exists():
            with journal.open("ab") as file:
                file.write(b'{"id": "torn')
    assert num_killed >= 3
    for name in ("results.json", "report.md"):
        assert (killed / name).read_bytes() == (straight / name).read_bytes()
    lines = records_of(journal)
    assert len(lines) == len({line.get("id") for line in lines}) == 31


WAYS = {"dataset": "countdown-short", "ways": {"plain": {}, "more": {"beside": "plain"}}}
RECIPE = {"model": "countdown", "dataset": "countdown-short", "published": {
    "percent": 50, "questions": 1, "source": "a table"}, "sampling": {"max_tokens": 8}}  # fmt: skip


@pytest.mark.parametrize(
    ("line", "num_options"),
    [
        ("eval best-of-n --dataset countdown-short", 34),
        ("eval given --dataset ./mine.jsonl --grader text", 6),
        ("eval likelihood --dataset countdown-choice", 4),
        ("eval compare ways.json", 64),
        ("eval --recipe recipe.json", 34),
        ("eval ranks --dataset countdown-short", 35),
    ],
)
def test_a_run_of_an_older_version_goes_on_whichever_option_its_journal_lacks(
    dise: Dise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, num_options: int
) -> None:
    """Each option that is at its default here, of the key, its settings and objects in them."""
    begun: list[Any] = []
    monkeypatch.setattr(running, "run", lambda *to: begun.append(to[0]) or run(*to))
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "mine.jsonl", {"prompt": "1+2", "answer": "3", "response": "3"})
    written(tmp_path / "ways.json", WAYS)
    written(tmp_path / "recipe.json", RECIPE)
    args = (*shlex.split(line), "--limit", 1, "--output", "out")
    ended = dise(*args)
    assert ended.code == 0, ended.err
    path, [experiment] = tmp_path / "out" / "journal.jsonl", begun
    whole, results = path.read_bytes(), (tmp_path / "out" / "results.json").read_bytes()
    first, _, rest = whole.partition(b"\n")
    key = json.loads(first)
    facts = {"experiment", "model", "tokenizer", "dataset", "prompts", "source", "settings"}
    options = [(name,) for name in key.keys() - facts]
    options += [("settings", name) for name in key["settings"]]
    options += [
        ("settings", name, inner)
        for name, value in key["settings"].items()
        if isinstance(value, dict)
        for inner in value
    ]
    options = [place for place in options if place[-1] not in ("params", "plain", "more", "recipe")]
    assert len(options) >= num_options

    def lacking(place: Sequence[str]) -> bytes:
        less = json.loads(first)
        of = reduce(dict.__getitem__, place[:-1], less)
        del of[place[-1]]
        return encoded(less) + rest

    for place in options:
        path.write_bytes(lacking(place))
        journal = Journal(path, key_of(experiment), experiment.usual)
        journal.close()
        assert len(journal.records) == rest.count(b"\n")
        assert path.read_bytes() == lacking(place), "nothing of it is changed"
    last = lacking(options[-1])
    path.write_bytes(last[: last.rindex(b"\n", 0, -1) + 1])
    assert dise(*args).code == 0
    assert (path.read_bytes(), (tmp_path / "out" / "results.json").read_bytes()) == (last, results)
    for name in ("model", "settings"):
        path.write_bytes(lacking([name]))
        assert f"a run that does not say its {name}, and this run has" in dise(*args).err
    path.write_bytes(encoded({**key, "lookahead": None}) + rest)
    assert "with lookahead=None, and this run has no such setting" in dise(*args).err


def test_the_catalog_names_every_default_contender() -> None:
    from dise_eval.cli.evaluate import CHEAP_SCORES, CHOICE_SCORES, SCORES

    scores = tuple({*SCORES, *CHEAP_SCORES, *CHOICE_SCORES})
    assert Contenders.of(scores, installed_catalog()).labels == scores


def test_a_contenders_selector_has_settings_too() -> None:
    catalog = installed_catalog()
    label = "interleaved:answer+last-K:k=3,selector.answer.pattern=a:[,=]b,selector.last-K.k=2"
    [contender] = Contenders.of([label], catalog).members
    assert (contender.label, contender.scorer) == (label, catalog.scorer("interleaved", {"k": 3}))
    settings = {"answer": {"pattern": "a:[,=]b"}, "last-K": {"k": 2}}
    assert contender.selector == catalog.selector("answer+last-K", settings)
    with pytest.raises(InputError, match=r"Did you mean 'pattern'\?"):
        Contenders.of(["dise:answer:selector.patern=1"], catalog)


def test_a_contender_may_be_named_by_its_plugin() -> None:
    catalog = with_guests(scorers={"own": DiSE}, selectors={"every-K": LastK, "full": LastK})
    label = "guest:own:last-3+guest:every-4"
    [member] = Contenders.of([label], catalog).members
    assert len(member.selector.model_dump()["parts"]) == 2
    assert names_in(f"{label}:k=a:b", catalog) == ("guest:own", "last-3+guest:every-4", "k=a:b")
    assert names_in("guest:last-10", catalog) == ("guest", "last-10", "")
    assert names_in("dise::k=3", catalog) == ("dise", "", "k=3")


def test_a_folder_that_cannot_be_made_is_refused_before_the_model_is_loaded(
    dise: Dise, tmp_path: Path
) -> None:
    (tmp_path / "afile").touch()
    output = tmp_path / "afile" / "out"
    refused = dise("eval", "uncertainty", *SHORT, "--output", output, "--model", "/no/such/model")
    assert refused.code == 2
    assert f"nothing can be written in the folder --output {output}: Not a dir" in refused.err
