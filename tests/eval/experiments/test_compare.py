"""dise eval compare: its file, its figures and its run on the embedded models."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dise_core import LLM, InputError, SamplingParams
from dise_eval.datasets.questions import load
from dise_eval.experiments.waysfile import Way, file_of, ways_of
from dise_eval.reports.ways import compare
from tests.commands import Dise
from tests.jsonlines import records_of, written

RESULTS = Path(__file__).parents[3] / "docs" / "results"

SHARED = {"max_tokens": 24, "block_length": 12, "tokens_per_step": 6}
NAMED = "answered by others"
WAYS: dict[str, Any] = {
    "as written": {},
    "revised": {"reviser": "remask", "reviser_settings": {"threshold": 0.99, "rounds": 1}},
    "best of 2": {"best_of": 2, "temperature": 1.0, "beside": "revised"},
    NAMED: {"model": "countdown-blocks", "block_length": 8, "steps": 6},
}


def given(**fields: object) -> dict[str, object]:
    return {"dataset": "countdown-short", "limit": 2, "shared": SHARED, "ways": WAYS, **fields}


def test_a_way_has_what_is_shared_where_it_says_nothing_else(tmp_path: Path) -> None:
    """Steps stand instead of tokens a step, and another reviser has settings of its own."""
    revised: dict[str, Any] = {"reviser": "remask", "reviser_settings": {"threshold": 0.5}}
    content = given(
        shared={**SHARED, **revised},
        baseline="b",
        ways={"a": {"steps": 4}, "b": {"reviser": None}, "c": {"seed": 7, "beside": "a"}},
    )
    ways = ways_of(file_of(f"{written(tmp_path / 'ways.json', content)}")[1])
    plain: dict[str, Any] = {"max_tokens": 24, "block_length": 12, "logprobs": None, "seed": 0}
    assert ways == [
        Way("a", SamplingParams(**plain, **revised, steps=4), None, "b"),
        Way("b", SamplingParams(**plain, tokens_per_step=6, reviser=None), None, None),
        Way("c", SamplingParams(**{**plain, "seed": 7}, **revised, tokens_per_step=6), None, "a"),
    ]
    assert "tokens_per_step" not in ways[0].params.model_fields_set
    assert ways[1].params.reviser_settings == {}


def test_the_figures_of_records_that_are_given() -> None:
    """Four questions, five times; which are right, and the passes of each answer, by way."""
    ways = [
        Way("plain", SamplingParams()),
        Way("revised", SamplingParams(reviser="remask"), beside="plain"),
        Way("drawn", SamplingParams(best_of=2), beside="revised"),
    ]
    records: Any = [
        {
            "id": f"{way.name} | {time} | {number}",
            "way": way.name,
            "is_correct": is_right == "1",
            "nfe": passes + number,
            "num_tokens": 8,
            "stopped_by": "patience" if way.name == "drawn" and number else None,
            "is_revised": number > 0 if way.params.reviser else None,
        }
        for way, rights, passes in zip(ways, ("1100", "0111", "1111"), (10, 14, 20), strict=True)
        for time in range(5)
        for number, is_right in enumerate(rights)
    ]
    questions = SimpleNamespace(dataset=SimpleNamespace(name="mine"))
    report = compare(SimpleNamespace(ways=ways, questions=questions), records)  # type: ignore[arg-type]
    rows: Any = report.figures.to_dict()
    assert [row["accuracy"]["value"] for row in rows.values()] == [0.5, 0.75, 1.0]
    assert [row["nfe"] for row in rows.values()] == [11.5, 15.5, 21.5]
    gains = np.tile(np.array([0, 1, 1, 1.0]) - [1, 1, 0, 0], 5)
    drawn = np.random.default_rng(0).integers(0, 20, (1000, 20))
    low, high = np.quantile(gains[drawn].mean(axis=1), [0.025, 0.975])
    difference = {"value": 0.25, "low": low, "high": high, "num_questions": 20}
    assert rows["revised"]["difference"] == difference
    counted = ("beside", "mended", "spoiled", "revised", "stopped_by")
    assert [rows["plain"][name] for name in counted] == [None] * 5
    assert [rows["revised"][name] for name in counted] == ["plain", 10, 5, 0.75, None]
    assert [rows["drawn"][name] for name in counted] == ["revised", 5, 0, None, "patience 15"]


def test_a_run_is_reported_and_goes_on(dise: Dise, tmp_path: Path) -> None:
    ways = written(tmp_path / "ways.json", given())
    output = tmp_path / "run"
    line = ("eval", "compare", ways, "--output", output)
    run = dise(*line)
    assert run.code == 0, run.err
    assert (output / "report.md").read_text().startswith(f"# {run.out.splitlines()[0]}")
    figures = json.loads((output / "results.json").read_text())["figures"]
    assert list(figures) == list(WAYS)
    lines = (output / "journal.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines[1:]]
    assert len(records) == 4 * 2
    for name, row in figures.items():
        answers = [record for record in records if record["way"] == name]
        assert row["nfe"] == sum(record["nfe"] for record in answers) / 2
        assert row["accuracy"]["value"] == sum(record["is_correct"] for record in answers) / 2
    assert figures["best of 2"]["beside"] == "revised"
    assert figures["as written"]["nfe"] == 5, "2 blocks of 12 tokens in 2 steps each, and the score"
    assert figures["revised"]["nfe"] > 5
    pictures = ("compare", "differences")
    assert all((output / f"{name}.png").stat().st_size > 5000 for name in pictures)

    (output / "journal.jsonl").write_text("\n".join(lines[:4]) + "\n")
    assert dise(*line).out == run.out
    assert sorted((output / "journal.jsonl").read_text().splitlines()[1:]) == sorted(lines[1:])
    changed = written(ways, given(shared={**SHARED, "tokens_per_step": 4}))
    refused = dise("eval", "compare", changed, "--output", output)
    assert "settings.as written.tokens_per_step=6, and this run has" in refused.err


def test_each_way_is_written_by_its_model_as_alone(dise: Dise, tmp_path: Path) -> None:
    ways = written(tmp_path / "ways.json", given(limit=None))
    run = dise("eval", "compare", ways, "--limit", 1, "--output", tmp_path / "run", "--json")
    assert run.code == 0, run.err
    head, *records = records_of(tmp_path / "run" / "journal.jsonl")
    assert head["settings"][NAMED]["model"] == "countdown-blocks"
    texts = {record["way"]: record["text"] for record in records}
    [question] = load("countdown-short", None, 1, 0).items
    for model, name in (("countdown", "as written"), ("countdown-blocks", NAMED)):
        own = {key: value for key, value in WAYS[name].items() if key != "model"}
        shared = {key: value for key, value in SHARED.items() if key != "tokens_per_step"}
        more = {} if "steps" in own else {"tokens_per_step": 6}
        params = SamplingParams(**{**shared, **more, **own, "seed": 0})
        [answer] = LLM(model).generate([question.prompt], params)
        assert texts[name] == answer.outputs[0].text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "must hold an object like"),
        (given(dateset="gsm8k"), "there is no setting 'dateset'. Did you mean 'dataset'?"),
        (given(dataset=None), 'names no data set: give it a "dataset", for example'),
        (given(dataset="gsm9k"), "unknown data set 'gsm9k'. Did you mean 'gsm8k'?"),
        (given(ways={}), 'names no ways: give it "ways", an object with the options of a request'),
        (given(limit=0), "limit=0: Input should be greater than or equal to 1"),
        (given(ways=["a"]), "ways=['a']: Input should be a valid dictionary"),
        (given(ways={"a": 3}), "ways.a=3: Input should be a valid dictionary"),
        (
            given(ways={"a": {"tokens_per_stop": 2}}),
            "The way 'a' cannot be used: there is no setting 'tokens_per_stop'. Did you mean "
            "'tokens_per_step'?",
        ),
        (
            given(ways={"a": {}, "b": {"scorer": "dize"}}),
            "The way 'b' cannot be used: unknown scorer 'dize'. Did you mean 'dise'?",
        ),
        (
            given(ways={"a": {}, "b": {"reviser_settings": {"threshold": 0.5}}}),
            "The way 'b' cannot be used: reviser_settings need a reviser: name one",
        ),
        (
            given(ways={"as written": {}, "b": {"beside": "as writen"}}),
            "The way 'b' cannot be compared with 'as writen', which is no way of the file. Did you "
            "mean 'as written'?",
        ),
        (
            given(baseline="onee", ways={"one": {"beside": "two"}, "two": {"beside": "one"}}),
            "The baseline 'onee', which is no way of the file. Did you mean 'one'?",
        ),
        (given(ways={"a": {"model": "/no/such"}}), "/no/such"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_in_a_sentence_and_leaves_no_folder(
    dise: Dise, tmp_path: Path, content: object, message: str
) -> None:
    ways = written(tmp_path / "ways.json", content)
    refused = dise("eval", "compare", ways, "--output", tmp_path / "run")
    assert (refused.code, refused.out) == (2, "")
    assert message in refused.err
    assert not (tmp_path / "run").exists()


def test_a_way_that_is_given_twice_is_told(tmp_path: Path) -> None:
    path = written(tmp_path / "ways.json", '{"ways": {"a": {"seed": 1}, "a": {"seed": 2}}}')
    with pytest.raises(InputError, match="gives 'a' twice in one object"):
        file_of(f"{path}")


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*/*.json")), ids=lambda path: path.stem)
def test_the_ways_of_the_results_are_read(path: Path) -> None:
    """All of them: wrong options are refused where the file is read."""
    _, file = file_of(f"{path}")
    assert len(ways_of(file)) == len(file.ways) > 1
