"""A calibration file is read strictly, refused for other scores, and applied to every output."""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dise_core import LLM, Calibration, InputError, SamplingParams, ScoringParams
from dise_core.scoring.calibration import MAX_BYTES, Platt
from dise_core.testing import ToyPredictor
from tests.calibrations import RECORD, made


def written(folder: Path, record: object) -> Path:
    path = folder / "calibration.json"
    path.write_text(record if isinstance(record, str) else json.dumps(record))
    return path


def test_an_isotonic_map_is_linear_between_knots_and_constant_outside() -> None:
    calibration = made()
    for score, expected in [(-9, 0.1), (-4, 0.1), (-3.5, 0.25), (-2.5, 0.4), (-1.2, 0.8), (0, 0.9)]:
        assert calibration.probability(score) == pytest.approx(expected)
    assert calibration.probability(-math.inf) is None
    assert calibration.map.highest == 0.9


def test_platts_map_is_a_logistic_function_of_the_scores_it_was_fitted_on() -> None:
    map_ = Platt(slope=2.0, intercept=3.0, lowest_score=-500.0, highest_score=-1.0)
    scores = [-300.0, -5.0, -1.5, -1.0, 0.0]
    expected = [1 / (1 + math.exp(-(2 * min(score, -1) + 3))) for score in scores]
    assert map_.of(np.array(scores)) == pytest.approx(expected, rel=1e-9, abs=0)
    assert map_.highest == pytest.approx(expected[-1])


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    calibration = Calibration.load(written(tmp_path, RECORD))
    assert calibration == made()
    assert calibration.to_dict() == RECORD
    assert calibration.digest == made().digest != made(num_right=61).digest


PLATT = {"method": "platt", "slope": 1, "intercept": 0, "lowest_score": 0, "highest_score": 1}


def wrong_map(**changes: object) -> dict[str, object]:
    return {"map": RECORD["map"] | changes}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"version": 2}, "version=2"),
        ({"kind": "x"}, "there is no setting 'kind'"),
        ({"model": "m" * 1001}, "model="),
        ({"map": {"method": "spline"}}, "spline"),
        (wrong_map(scores=[]), "map.isotonic.scores=[]"),
        (wrong_map(scores=[-4, -3, -2]), "3 scores do not pair up with 4 probabilities"),
        (wrong_map(scores=[-4, -3, -3, -1]), "scores must increase"),
        (wrong_map(probabilities=[0.1, 0.4, 0.3, 0.9]), "probabilities must not decrease"),
        ({"map": PLATT | {"slope": -1}}, "map.platt.slope=-1"),
        ({"map": PLATT | {"lowest_score": 2}}, "lowest_score must not be above highest_score"),
    ],
)
def test_a_wrong_field_is_named_with_what_is_allowed(
    tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(InputError, match="calibration file") as error:
        Calibration.load(written(tmp_path, RECORD | changes))
    assert told in str(error.value)
    assert error.value.parameter == "calibration"
    assert "\n" not in str(error.value)


RECORDED = json.dumps(RECORD)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "[" * 100_000, RECORDED.replace("-4.0", "NaN"), RECORDED + " " * MAX_BYTES],
    ids=["empty", "a list", "deep", "NaN", "long"],
)
def test_what_is_no_calibration_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="calibration file"):
        Calibration.load(written(tmp_path, text))


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "none.json", tmp_path / "pipe", "a\0b"):
        with pytest.raises(InputError, match="calibration file"):
            LLM(ToyPredictor(), calibration=path)
    with pytest.raises(InputError, match="not int"):
        LLM(ToyPredictor(), calibration=3)  # type: ignore[arg-type]


def test_outputs_have_their_probability_and_whether_they_abstain(tmp_path: Path) -> None:
    for given in (made(), written(tmp_path, RECORD), str(tmp_path / "calibration.json")):
        llm = LLM(ToyPredictor(), calibration=given)
        outputs = [o for a in llm.score([[1, 2]] * 9, [[i] for i in range(9)]) for o in a.outputs]
        for output in outputs:
            value = output.score.value
            knots = RECORD["map"]["scores"], RECORD["map"]["probabilities"]
            assert output.probability == np.interp(value, *knots)
            assert output.abstained == (value < -2.5)
            assert output.to_dict()["probability"] == output.probability
            assert output.to_dict()["abstained"] is output.abstained
        assert len({output.abstained for output in outputs}) == 2
        [written_one] = llm.generate([[1, 2]], SamplingParams(max_tokens=4))
        assert written_one.outputs[0].probability is not None


def test_an_answer_without_a_score_has_no_probability_and_abstains() -> None:
    [answer] = LLM(ToyPredictor(), calibration=made(selector="response-text")).score([[1]], [[10]])
    assert (answer.outputs[0].probability, answer.outputs[0].abstained) == (None, True)


def test_without_a_calibration_or_threshold_both_are_none() -> None:
    [plain] = LLM(ToyPredictor()).score([[1, 2]], [[3]])
    record = plain.to_dict()["outputs"][0]
    assert (record["probability"], record["abstained"]) == (None, None)
    [answer] = LLM(ToyPredictor(), calibration=made(threshold=None)).score([[1, 2]], [[3]])
    assert answer.outputs[0].probability is not None
    assert answer.outputs[0].abstained is None


def test_scores_are_computed_as_the_calibration_says_unless_the_request_does() -> None:
    settings = {"num_samples": 3, "seed": 0, "cfg_scale": 0.0}
    mc = made(scorer="mc", selector="response", scorer_settings=settings)
    llm = LLM(ToyPredictor(), calibration=mc)
    [answer] = llm.score([[1, 2]], [[3, 4]])
    asked = ScoringParams(scorer="mc", scorer_settings={"num_samples": 3}, selector="response")
    [same] = llm.score([[1, 2]], [[3, 4]], asked)
    [plain] = LLM(ToyPredictor()).score([[1, 2]], [[3, 4]], asked)
    assert {a.outputs[0].score.value for a in (answer, same, plain)} == {
        answer.outputs[0].score.value
    }
    assert (answer.outputs[0].scorer, answer.usage.nfe) == ("mc", plain.usage.nfe)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"scorer": "shadow"}, "for scorer dise, not shadow"),
        ({"scorer": "mc", "scorer_settings": {"num_samples": 2}}, "for scorer dise, not mc"),
        ({"selector": "last-10"}, "for selector response, not last-10"),
    ],
)
def test_other_scores_are_refused_by_name_before_any_pass(asked: dict[str, Any], told: str) -> None:
    predictor = ToyPredictor()
    llm = LLM(predictor, calibration=made())
    for work in (
        lambda: llm.score([[1]], [[2]], ScoringParams(**asked)),
        lambda: llm.generate([[1]], SamplingParams(max_tokens=4, **asked)),
        lambda: llm.rank([1], [[2], [3]], ScoringParams(**asked)),
    ):
        with pytest.raises(InputError, match="the calibration is for") as error:
            work()
        assert told in str(error.value)
    assert predictor.batches == []


REVISED = (
    "revised by remask with detector=low-prob, threshold=0.9, read=visible, max_tokens=16, "
    "share=1.0, per_position=64, widen=0, rounds=2, accept=better"
)


@pytest.mark.parametrize(
    ("fitted", "asked", "told"),
    [
        ({}, {}, None),
        ({}, {"reviser": "remask", "reviser_settings": {"rounds": 2}},
         f"is for answers without a reviser, not for answers {REVISED}: revise likewise"),
        ({"reviser": "remask", "reviser_settings": {"rounds": 2}}, {},
         f"is for answers {REVISED}, not for answers without a reviser"),
        ({"reviser": "remask"}, {"reviser": "remask", "reviser_settings": {"rounds": 4}}, None),
        ({"reviser": "remask"}, {"reviser": "remask", "reviser_settings": {"rounds": 3}},
         "rounds=4, accept=better, not for answers revised by remask"),
    ],
)  # fmt: skip
def test_answers_that_are_revised_otherwise_are_refused(
    fitted: dict[str, Any], asked: dict[str, Any], told: str | None
) -> None:
    predictor = ToyPredictor()
    llm = LLM(predictor, calibration=made(**fitted))
    params = SamplingParams(max_tokens=4, selector="response", **asked)
    if told is None:
        assert llm.generate([[1, 2]], params)[0].outputs[0].probability is not None
        return
    with pytest.raises(InputError, match=re.escape(told)) as error:
        llm.generate([[1, 2]], params)
    assert error.value.parameter == "calibration"
    assert predictor.batches == []


def test_other_settings_are_refused_by_name() -> None:
    asked = ScoringParams(scorer="mc", scorer_settings={"num_samples": 4}, selector="response")
    for fitted, params, told in (
        (made(scorer="mc", scorer_settings={"num_samples": 3}), asked, "num_samples 3, not 4"),
        (made(scorer="nothing"), None, "unknown scorer 'nothing'"),
    ):
        with pytest.raises(InputError, match=told):
            LLM(ToyPredictor(), calibration=fitted).score([[1]], [[2]], params)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"model": "other"}, "for model 'other', not for 'toy'"),
        ({"fingerprint": "0" * 16}, "whose fingerprint is 0000000000000000"),
    ],
)
def test_another_model_is_refused_by_name(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as error:
        LLM(ToyPredictor(), calibration=made(**changes))
    assert told in str(error.value)
    assert LLM(ToyPredictor(), calibration=made(fingerprint=None)).planner.calibration is not None


def test_a_file_of_before_holds_for_answers_as_they_were_written(tmp_path: Path) -> None:
    older = {key: value for key, value in RECORD.items() if not key.startswith("reviser")}
    assert Calibration.load(written(tmp_path, older)) == made()
