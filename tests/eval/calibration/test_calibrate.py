"""dise calibrate, as a person types it, and what its file does at every door."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from dise_core import AsyncLLM, Calibration, InputError
from dise_core.plugins.discovery import installed_catalog
from dise_core.scoring.calibration import Holding
from dise_eval.calibration import label_rows
from dise_eval.calibration.label_rows import ScoredBy
from dise_eval.cli.calibrate import LABELLED
from tests.app.serving import serving
from tests.commands import Dise, Run
from tests.jsonlines import records_of, written

SAID = ("--score", "dise:last-10", "--model-name", "countdown", "--texts", "given")


def labelled(path: Path, size: int = 400) -> Path:
    """Scores of which the higher are mostly right."""
    random = np.random.default_rng(0)
    scores = random.normal(size=size) - 3
    right = random.random(size) < 1 / (1 + np.exp(-3 * (scores + 3.5)))
    pairs = zip(scores.tolist(), right.tolist(), strict=True)
    return written(path, *({"score": s, "label": r} for s, r in pairs))


def calibrated(dise: Dise, folder: Path, *more: object) -> tuple[Run, Path]:
    output = folder / "calibration.json"
    scored = labelled(folder / "labels.jsonl")
    return dise("calibrate", scored, "--output", output, *SAID, *more), output


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nowhere/c.json", "cannot write --output {}: No such file or directory"),
        ("labels.jsonl/c.json", "cannot write --output {}: Not a directory"),
        (".", "--output {} is a folder; name a file in it"),
    ],
)
def test_an_output_that_cannot_be_written_is_a_usage_error(
    dise: Dise, tmp_path: Path, name: str, told: str
) -> None:
    scored, output = labelled(tmp_path / "labels.jsonl"), tmp_path / name
    refused = dise("calibrate", scored, "--output", output, *SAID, "--overwrite")
    assert (refused.code, told.format(output) in refused.err) == (2, True), refused.err
    assert [path.name for path in tmp_path.iterdir()] == ["labels.jsonl"]


def test_it_writes_a_file_a_picture_and_what_they_say(dise: Dise, tmp_path: Path) -> None:
    run, output = calibrated(dise, tmp_path, "--max-risk", 0.1, "--held-out", 0.25)
    assert run.code == 0, run.err
    calibration = Calibration.load(output)
    assert calibration.threshold is not None
    assert (calibration.num_labels, calibration.map.method) == (300, "platt")
    assert output.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    told = ("300 labels", "% right", "ECE 0.", "(10 bins)", "Brier 0.", "at most 10% wrong with")
    assert all(part in run.out for part in (*told, "held out, 100 labels of 100 questions"))
    again = ("--max-risk", 0.1, "--json", "--overwrite")
    found = json.loads(calibrated(dise, tmp_path, *again)[0].out)
    made = found["calibration"]
    assert (made["num_labels"], found["held_out"]) == (400, None)
    scored = records_of(tmp_path / "labels.jsonl")
    kept = [each["label"] for each in scored if each["score"] >= made["threshold"]["score"]]
    assert made["threshold"]["coverage"] == len(kept) / 400
    assert made["threshold"]["risk"] == pytest.approx(1 - np.mean(kept))
    assert found["threshold_reason"].startswith(f"{kept.count(False)} of the {len(kept)} surest")
    assert "it is there because" in run.out


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (
            ("--max-risk", 0.001),
            "it takes 2995 answers or more without a wrong one, of 400 questions",
        ),
        (("--max-risk", 1.5), "--max-risk 1.5: it must be between 0 and 1"),
        (("--held-out", 0.0001), "the 0 answers held out are not of both kinds"),
        (("--risk-confidence", 0), "--risk-confidence 0.0"),
        (("--held-out", 0.9), "40 labels are too few"),
        (("--score", "nothing"), "unknown scorer 'nothing'"),
        (("--label-field", "right"), "line 1 has no 'right'"),
        (("--label-field", "score"), "line 1: its label must be true or false"),
        (("--score-field", "label"), "line 1: its score must be a number, not"),
    ],
)
def test_what_cannot_be_done_is_told_and_nothing_written(
    dise: Dise, tmp_path: Path, more: tuple[object, ...], told: str
) -> None:
    run, output = calibrated(dise, tmp_path, *more)
    assert run.code == 2
    assert told in run.err
    assert run.err.count("\n") == 1
    assert not output.exists()


def read(path: Path, *score: str, **asked: Any) -> tuple[list[float], list[bool], ScoredBy]:
    options = dict.fromkeys(LABELLED.options) | {"label_field": "label", "score": score} | asked
    labels, ways = label_rows.read(path, options, installed_catalog())
    [by] = ways.values()
    return labels.scores.tolist(), labels.is_right.tolist(), by


def test_a_journals_scores_are_those_of_the_contender_that_is_named(tmp_path: Path) -> None:
    key = {"experiment": "sampled", "model": "m", "tokenizer": "abc", "settings": {}}
    key["settings"] = {"scorers": ["dise:last-10", "mc:response:num_samples=2"]}

    def answer(value: float | None, right: bool) -> dict[str, Any]:
        scores = {"dise:last-10": {"value": -1.0}, "mc:response:num_samples=2": {"value": value}}
        return {"is_correct": right, "scores": scores}

    records = [{"id": i, "answers": [answer(-2.0, True), answer(None, False)]} for i in "ab"]
    path = written(tmp_path / "journal.jsonl", key, *records)
    label = "mc:response:num_samples=2"
    with pytest.raises(InputError, match="name one of the journal's scores with --score: dise"):
        read(path)
    with pytest.raises(InputError, match="line 2: its score is null"):
        read(path, label)
    scores, rights, by = read(tmp_path, label, skip_unscored=True)
    assert (scores, rights) == ([-2.0, -2.0], [True, True])
    facts = {"model": "m", "fingerprint": "abc", "scorer": "mc", "selector": "response"}
    assert facts.items() <= by.items()
    assert by["scorer_settings"]["num_samples"] == 2
    assert by["holds_for"] == Holding(texts="written")
    assert read(path, "dise:last-10")[1] == [True, False, True, False]


def test_a_file_says_by_what_its_answers_were_revised(dise: Dise, tmp_path: Path) -> None:
    params = {"reviser": "remask", "reviser_settings": {"rounds": 2}}
    key = {"experiment": "sampled", "model": "m", "settings": {"scorers": ["dise"]}}
    key["settings"] |= {"params": params}  # type: ignore[operator]
    scored = {"is_correct": True, "scores": {"dise": {"value": -1.0}}}
    [*_, by] = read(written(tmp_path / "journal.jsonl", key, {"id": "a", "answers": [scored]}))
    fitted = by["holds_for"].settings
    assert fitted["reviser"] == ("remask",)
    [settings] = fitted["reviser_settings"]
    assert (settings["rounds"], settings["threshold"]) == (2, 0.9)
    given = written(tmp_path / "in.jsonl", {"prompt": "83,18,75 -> 10", "label": True})
    answers, short = tmp_path / "answers.jsonl", ("--max-tokens", 8, "--block-length", 8)
    more = ("--reviser", "remask", "--reviser-setting", "rounds=3")
    assert dise("generate", "--input", given, "--output", answers, *short, *more).code == 0
    [*_, by] = read(answers)
    holding = by["holds_for"]
    assert (holding.texts, holding.prompted, holding.chat) == ("written", True, None)
    assert holding.settings["reviser"] == ("remask",)
    assert holding.settings["reviser_settings"][0]["rounds"] == 3
    assert (holding.settings["max_tokens"], "temperature" in holding.settings) == ((8,), False)
    key["settings"] |= {"params": {"reviser": "none"}}  # type: ignore[operator]
    with pytest.raises(InputError, match="unknown reviser 'none'"):
        read(written(tmp_path / "other.jsonl", key, {"id": "a", "answers": [scored]}))


def test_answers_of_dise_score_say_what_they_are_scored_by(dise: Dise, tmp_path: Path) -> None:
    asked = {"prompt": "83,18,75 -> 10", "response": "18+75=93,93-83=10", "label": True}
    given = written(tmp_path / "in.jsonl", asked, {**asked, "response": "18+75", "label": 0})
    more = ("--scorer", "interleaved", "--scorer-setting", "k=3", "--selector", "answer+last-2")
    more += ("--selector-setting", "answer.pattern=9.")
    answers = tmp_path / "answers.jsonl"
    assert dise("score", "--input", given, "--output", answers, *more).code == 0
    scores, rights, by = read(answers)
    assert rights == [True, False]
    assert scores == [each["outputs"][0]["score"]["value"] for each in records_of(answers)]
    assert (by["model"], by["scorer"]) == ("countdown", "interleaved")
    assert by["scorer_settings"]["k"] == 3
    assert (by["selector"], by["selector_settings"]) == (
        "answer+last-2", {"answer": {"pattern": "9."}}
    )  # fmt: skip
    assert by["holds_for"] == Holding(texts="given")
    with pytest.raises(InputError, match="does not say how its scores were computed"):
        read(written(tmp_path / "bare.jsonl", {"score": 1, "label": 1}))
    with pytest.raises(InputError, match="does not name its model"):
        read(tmp_path / "bare.jsonl", "dise")
    with pytest.raises(InputError, match="asks a judge"):
        read(tmp_path / "bare.jsonl", "ar-perplexity", model_name="m")
    with pytest.raises(InputError, match="say --texts written, or --texts given"):
        read(tmp_path / "bare.jsonl", "dise", model_name="m")
    unprompted = records_of(answers)
    unprompted[1]["prompt"] = ""
    with pytest.raises(InputError, match="some answers have a prompt and some have none"):
        read(written(tmp_path / "mixed.jsonl", *unprompted), "dise")
    gap = records_of(answers)[0] | {"suffix": "83"}
    with pytest.raises(InputError, match="these answers fill gaps"):
        read(written(tmp_path / "gaps.jsonl", gap), "dise")


def test_lines_may_tell_what_each_was_written_with(tmp_path: Path) -> None:
    answer = {"score": -1, "label": 1, "prompt": "1 -> 1"}
    params = ({"temperature": 0.7}, {"temperature": 1.0, "n": 3}, {"temperature": 0.7})
    path = written(tmp_path / "labels.jsonl", *(answer | {"params": one} for one in params))
    by = read(path, "dise", model_name="m", texts="written")[2]
    temperatures, best = (by["holds_for"].settings[name] for name in ("temperature", "best_of"))
    assert (temperatures, best) == ((0.7, 1.0), (None, "1 of 3"))
    for wrong, told in (
        (None, "line 1: its params must be an object, not None"),
        ({"nope": 1}, "line 1: its params: there is no setting 'nope'"),
    ):
        path = written(tmp_path / "wrong.jsonl", answer | {"params": wrong})
        with pytest.raises(InputError, match=told):
            read(path, "dise", model_name="m", texts="written")


def test_token_ids_are_fitted_as_texts_that_go_on(dise: Dise, tmp_path: Path) -> None:
    text = {"prompt": "83,18,75 -> 10", "response": "18+75=93", "label": True}
    ids = {"prompt": "83,18,75 -> 10", "response_ids": [5, 6, 7], "label": False}
    for name, lines, finished in (("text", [text], True), ("ids", [ids], False)):
        given, answers = written(tmp_path / f"{name}.jsonl", *lines), tmp_path / f"{name}.out"
        assert dise("score", "--input", given, "--output", answers).code == 0
        assert read(answers)[2]["holds_for"].finished is finished
    both, answers = written(tmp_path / "both.jsonl", text, ids), tmp_path / "both.out"
    assert dise("score", "--input", both, "--output", answers).code == 0
    with pytest.raises(InputError, match="some texts were read with an end behind them"):
        read(answers)


@pytest.mark.parametrize("text", ["", "[]\n", "{\n", '{"score": 1e999, "label": 1}\n'])
def test_files_that_hold_no_labels_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(text)
    with pytest.raises(InputError):
        read(path, "dise", model_name="m")
    with pytest.raises(InputError, match="cannot read"):
        read(tmp_path / "none.jsonl")


@pytest.mark.parametrize("value", [1e308, -1e308, 2e100, 10**400])
def test_a_score_that_would_overflow_is_refused_by_its_line(
    dise: Dise, tmp_path: Path, value: float
) -> None:
    rows = records_of(labelled(tmp_path / "good.jsonl"))
    rows[6]["score"] = value
    path, output = written(tmp_path / "labels.jsonl", *rows), tmp_path / "c.json"
    run = dise("calibrate", path, "--output", output, *SAID)
    told = f"line 7: its score must be between -1e+100 and 1e+100, not {value!r:.9}"
    assert (run.code, told in run.err, run.err.count("\n")) == (2, True, 1)


@pytest.mark.parametrize("method", ["platt", "isotonic"])
@pytest.mark.parametrize("scale", [1e99, 1e-320])
def test_large_and_small_scores_are_fitted_without_a_warning(
    dise: Dise, tmp_path: Path, method: str, scale: float
) -> None:
    rows = records_of(labelled(tmp_path / "good.jsonl"))
    scaled = [row | {"score": row["score"] * scale} for row in rows]
    path, output = written(tmp_path / "labels.jsonl", *scaled), tmp_path / "c.json"
    more = ("--method", method, "--max-risk", 0.2)
    run = dise("calibrate", path, "--output", output, *SAID, *more)
    assert (run.code, run.err) == (0, "")
    plain = dise(
        "calibrate", tmp_path / "good.jsonl", "--output", output, *SAID, *more, "--overwrite"
    )
    if scale > 1:
        assert plain.out.partition("ROC-AUC")[0] == run.out.partition("ROC-AUC")[0]


def test_every_door_tells_the_probability(dise: Dise, tmp_path: Path) -> None:
    _, output = calibrated(dise, tmp_path, "--max-risk", 0.1)
    asked = ("--prompt", "83,18,75 -> 10", "--response", "18+75=93")
    run = dise("score", *asked, "--calibration", output, "--json")
    [found] = json.loads(run.out)["outputs"]
    expected = Calibration.load(output).probability(found["score"]["value"])
    assert found["probability"] == pytest.approx(expected)
    assert found["abstained"] in {True, False}
    assert "likely to be right" in dise("score", *asked, "--calibration", output).out
    other = dise("score", *asked, "--calibration", output, "--selector", "full")
    assert (other.code, "likely to be right" in other.out) == (0, False)
    why = "no probability of being right: it was fitted with selector last-10, and this has full"
    assert why in other.out
    llm = AsyncLLM("countdown", calibration=output)
    with serving(llm) as url:
        body = {"prompt": "83,18,75 -> 10", "max_tokens": 8, "temperature": 0}
        choice = httpx.post(f"{url}/v1/completions", json=body).json()["choices"][0]
        scored = {"prompt": "83,18,75 -> 10", "response": "18+75=93"}
        [data] = httpx.post(f"{url}/v1/score", json=scored).json()["data"]
        other = httpx.post(f"{url}/v1/score", json=scored | {"selector": "full"})
        assert httpx.get(f"{url}/health").json()["calibrated_selector"] == "last-10"
    assert choice["dise"]["probability"] is None
    assert "with texts given, and this has written" in choice["dise"]["uncalibrated"]
    assert choice["dise"]["written"] < 0
    assert data["probability"] == pytest.approx(expected)
    assert "and this has full" in other.json()["data"][0]["uncalibrated"]


TWO = ("--score", "dise:last-10", "--score", "interleaved:response:k=2")
FIELDS = ("--score-field", "a", "--score-field", "b.0", "--model-name", "countdown")
AUTO = ("--selector", "auto")
GIVEN, WRITTEN = ("--texts", "given"), ("--texts", "written")


def two_scores(path: Path, size: int = 400) -> Path:
    """Scores that only together tell what is right."""
    random = np.random.default_rng(0)
    first, second = random.normal(size=(2, size)) - 3
    right = random.random(size) < 1 / (1 + np.exp(-2 * (first + second + 6)))
    rows = zip(first.tolist(), second.tolist(), right.tolist(), strict=True)
    return written(path, *({"a": a, "b": [b], "label": r} for a, b, r in rows))


def test_several_scores_are_not_fitted_together(dise: Dise, tmp_path: Path) -> None:
    scored, output = two_scores(tmp_path / "labels.jsonl"), tmp_path / "c.json"
    run = dise("calibrate", scored, "--output", output, *TWO, *FIELDS, *WRITTEN)
    assert run.code == 2
    assert "Several --score are not fitted together" in run.err
    assert "choose one by --selector auto" in run.err
    assert not output.exists()


def test_a_line_that_lacks_one_of_the_scores_is_named(dise: Dise, tmp_path: Path) -> None:
    rows = records_of(two_scores(tmp_path / "labels.jsonl"))
    rows[6]["b"] = [None]
    path, output = (
        written(tmp_path / "null.jsonl", *rows),
        ("--overwrite", "--output", tmp_path / "c.json"),
    )
    run = dise("calibrate", path, *output, *TWO, *AUTO, *FIELDS, *GIVEN)
    assert "line 7: its score is null, that of b.0" in run.err
    run = dise("calibrate", path, *output, *TWO, *AUTO, *FIELDS, *GIVEN, "--skip-unscored")
    assert "399 labels" in run.out
    del rows[6]["b"]
    path = written(tmp_path / "none.jsonl", *rows)
    run = dise("calibrate", path, *output, *TWO, *AUTO, *FIELDS, *GIVEN)
    assert "line 7 has no 'b.0'" in run.err
    run = dise("calibrate", path, *output, *TWO, *AUTO, *FIELDS[2:], *GIVEN)
    assert "name a --score-field for each --score, in its order" in run.err
    key = {"experiment": "sampled", "model": "m", "settings": {"scorers": ["dise", "shadow"]}}
    answer = {"is_correct": True, "scores": {"dise": {"value": -1.0}}}
    journal = written(tmp_path / "journal.jsonl", key, {"id": "a", "answers": [answer]})
    with pytest.raises(InputError, match="line 2 was not written by dise eval: it lacks 'shadow'"):
        read(journal, "dise", "shadow", selector="auto")


def test_fields_are_fitted_by_pattern_and_by_type_where_labels_suffice(
    dise: Dise, tmp_path: Path
) -> None:
    scored = records_of(labelled(tmp_path / "labels.jsonl", 700))
    lines = [
        {"path": path, "type": "integer", "score": one["score"], "correct": one["label"]}
        for index, one in enumerate(scored)
        for path in [f"/lines/{index % 3}/qty" if index < 450 else "/total", "/few"][
            : 1 + index % 2
        ]
        if path != "/few" or index < 300
    ]
    path, output = written(tmp_path / "fields.jsonl", *lines), tmp_path / "fields.json"
    run = dise("calibrate", path, "--fields", "--output", output, "--max-risk", 0.3, *SAID)
    assert run.code == 0, run.err
    assert "/few: left out, 150 labels are too few: a calibration needs at least 200" in run.out
    calibration = Calibration.load(output)
    assert calibration.map is None
    counts = {name: fit.num_labels for name, fit in calibration.fields.items()}
    assert counts == {"/lines/*/qty": 450, "integer": 850, "/total": 250}
    quantity = calibration.of_field("/lines/17/qty", "integer")
    assert quantity is not None
    assert quantity.threshold is not None
    alone = written(tmp_path / "alone.jsonl", *(one for one in lines if "qty" in one["path"]))
    more = ("--label-field", "correct", "--max-risk", 0.3, *SAID)
    assert dise("calibrate", alone, "--output", tmp_path / "alone.json", *more).code == 0
    assert Calibration.load(tmp_path / "alone.json").map == quantity.map
    bad = written(path, lines[0] | {"path": "a.b"})
    run = dise("calibrate", bad, "--fields", "--output", output, "--overwrite", *SAID)
    assert (run.code, "'a.b' is no JSON pointer" in run.err) == (2, True)
