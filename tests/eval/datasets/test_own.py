"""Anyone's data set is a file of prompts and answers with the name of a grader, or one record."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from dise_core import InputError
from dise_eval.datasets import questions
from dise_eval.datasets.dataset import Dataset
from dise_eval.datasets.own import dataset_of
from tests.commands import Dise
from tests.jsonlines import records_of, written
from tests.pages import ROOT, lines_of, titled

ROWS = [{"prompt": "83,18,75 -> 10", "answer": 10}, {"question": "5,3,2 -> 10", "truth": "10"}]


def test_the_example_of_the_page_grades_what_is_right_as_right(
    dise: Dise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pasted. The answers are read again here: right is 12 - 5 = 7, and 23 + 14 = 37."""
    page = ROOT / "docs" / "evaluation.md"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.jsonl").write_text(titled(page.read_text())["mine.jsonl"])
    [line] = [line for line in lines_of(page) if "./mine.jsonl" in line]
    run = dise(*shlex.split(line)[1:])
    assert run.code == 0, run.err
    assert "5 of 10 answers to 2 questions are right: too few for a ROC-AUC" in run.out
    [key, toms, annas] = records_of(tmp_path / "runs" / "mine" / "journal.jsonl")
    assert (key["dataset"], key["grader"]) == ("mine", "number-robust-1")
    for record, right in ((toms, "7"), (annas, "37")):
        for answer in record["answers"]:
            assert answer["is_correct"] == (re.findall(r"\d+", answer["text"])[-1:] == [right])
    assert all(answer["is_correct"] for answer in toms["answers"])
    assert not any(answer["is_correct"] for answer in annas["answers"])


@pytest.mark.parametrize(
    ("grader", "answer", "told"),
    [
        ("number", 10, r"0 of 4 answers are right; the first 4 extractions: `-83` \(the truth"),
        ("countdown", [[83, 18, 75], 10], r"4 of 4 .* 4 extractions: `18\+75-83` \(makes 10,"),
    ],
)
def test_answers_of_one_kind_have_their_extractions_told_and_no_figure(
    dise: Dise, tmp_path: Path, grader: str, answer: object, told: str
) -> None:
    rows = [{"prompt": "83,18,75 -> 10", "answer": answer, "response": "18+75-83=10"}] * 2
    rows[0] |= {"response": "93-83=10<answer>18+75-83</answer>"}
    rows[1] |= {"response": "<answer>18+75-83</answer>"}
    data = written(tmp_path / "mine.jsonl", *rows)
    common = ("--dataset", data, "--grader", grader, "--score", "dise")
    few = ("--max-tokens", 48, "--block-length", 16, "--n", 2, "--temperature", 0.1)
    for verb in (("eval", "uncertainty"), ("eval", "selectors"), ("eval", "correctness")):
        folder = tmp_path / verb[1]
        run = dise(*verb, *common, *few, "--output", folder)
        assert run.code == 0, run.err
        assert re.search(told, " ".join(run.out.split()))
        assert not re.search(r"\bnan\b|AU[RG]*C \||highest|\.png", run.out)
        assert not list(folder.glob("*.png"))
        assert json.loads((folder / "results.json").read_text())["sentence"] in " ".join(
            run.out.split()
        )
    run = dise("eval", "given", *common, "--output", tmp_path / "given")
    assert re.search(told.replace("4", "2"), " ".join(run.out.split()))
    assert "ROC-AUC |" not in run.out
    assert not list((tmp_path / "given").glob("*.png"))


def test_a_drawn_set_has_as_many_questions_as_its_limit() -> None:
    """Some of what is drawn for countdown-choice makes no question: of 256 rows 246 do."""
    limited = {count: questions.load("countdown-choice", limit=count).items for count in (20, 256)}
    assert [len(items) for items in limited.values()] == [20, 256]
    every = questions.load("countdown-choice").items
    assert len(every) == 246
    assert limited[256][:246] == every
    assert limited[20] == every[:20]


def test_choices_are_ranked_and_given_answers_are_graded(dise: Dise, tmp_path: Path) -> None:
    choices = {"prompt": "83,18,75 -> 10", "choices": ["83-75=8", "18+75=93"], "answer": "B"}
    data = written(tmp_path / "choices.jsonl", choices, {**choices, "answer": "83-75=8"})
    loaded = questions.load(str(data))
    assert [item.right for item in loaded.items] == [1, 0]
    assert loaded.items[0].candidates == (" 83-75=8", " 18+75=93")
    args = ("eval", "likelihood", "--dataset", data, "--score", "dise:response", "--json")
    run = dise(*args, "--output", tmp_path / "ranked")
    assert json.loads(run.out)["figures"]["dise:response"]["accuracy"]["num_questions"] == 2
    data = written(tmp_path / "given.jsonl", {**ROWS[0], "response": "75+18-83=10"})
    args = ("eval", "given", "--dataset", data, "--grader", "number", "--score", "dise", "--json")
    run = dise(*args, "--output", tmp_path / "given")
    assert json.loads(run.out)["figures"]["all"]["dise"]["num_right"] == 1


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"prompt": "x", "answer": "many"}, "field 'answer' must be a number, not 'many'"),
        ({"prompt": "x", "truth": None}, "field 'truth' must be a number, not None"),
        ({"prompt": "x"}, "it has no field 'answer' or 'truth'"),
        ({"answer": 1}, "it has no field 'prompt' or 'question' or 'problem'"),
        ({"prompt": ["x"], "answer": 1}, "its prompt must be a text, not ['x']"),
        ({"prompt": "x", "answer": 1, "choices": "ab"}, "field 'choices' must be a list of texts"),
        (
            {"prompt": "x", "answer": "C", "choices": ["a", "b"]},
            "the answer 'C' is neither a choice nor the letter of one",
        ),
    ],
)
def test_a_wrong_line_is_named_with_its_field(tmp_path: Path, row: object, told: str) -> None:
    data = written(tmp_path / "mine.jsonl", ROWS[0], row)
    with pytest.raises(InputError) as refusal:
        questions.load(str(data), grader="number")
    assert str(refusal.value).startswith("line 2 of mine.jsonl does not fit 'mine': ")
    assert told in str(refusal.value)
    assert 'a row is {"prompt": "...", "answer": ...}' in str(refusal.value)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ('["x"]', 'is not a JSON object: ["x"]; a row is {"prompt": '),
        ('{"prompt": "x", "answer": NaN}', "is not JSON: NaN is no number in JSON; a row is"),
    ],
)
def test_a_row_that_is_no_json_object_is_named(tmp_path: Path, row: str, told: str) -> None:
    good = json.dumps(ROWS[0])
    for name, text in (("line 3", f"{good}\n\n{row}\n"), ("row 2", f"[{good}, {row}]")):
        path = tmp_path / ("mine.jsonl" if name == "line 3" else "mine.json")
        path.write_text(text)
        with pytest.raises(InputError, match=re.escape(f"{path}: {name} {told}")):
            questions.load(str(path), grader="number")


def test_what_cannot_be_graded_says_which_graders_there_are(dise: Dise, tmp_path: Path) -> None:
    data = written(tmp_path / "mine.jsonl", *ROWS)
    run = dise("eval", "uncertainty", "--dataset", data, "--output", tmp_path / "run")
    assert (run.code, run.out) == (2, "")
    assert "--grader names how they are, one of number, math, countdown, choice, text" in run.err
    run = dise("eval", "best-of-n", "--dataset", data, "--grader", "numbr", "--output", tmp_path)
    assert "unknown grader 'numbr'. Did you mean 'number'? Known: choice, countdown, d1" in run.err


def test_a_strangers_data_set_is_one_record(tmp_path: Path) -> None:
    data = written(tmp_path / "capitals.jsonl", {"land": "Peru", "capital": "Lima", "code": "PE"})
    capitals = Dataset(
        name="capitals",
        path=data,
        prompt=lambda row: f"The capital of {row['land']} is",
        answer="capital",
        grader="text",
        id_field="code",
        shot=lambda row: f"{row['land']}: {row['capital']}",
    )
    problem = capitals.problem({"land": "Peru", "capital": "Lima", "code": "PE"}, 0)
    assert (problem.id, problem.prompt) == ("PE", "The capital of Peru is")
    assert capitals.grading(problem, "robust").grade("lima.").is_correct
    assert dataset_of("gsm8k", "choice").grader == "choice"
    with pytest.raises(InputError, match=r"unknown data set 'gsm9k'. Did you mean 'gsm8k'\?"):
        dataset_of("gsm9k")
