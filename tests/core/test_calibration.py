"""A calibration file is read strictly, refused for other scores, and applied to every output."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dise_core import LLM, Calibration, InputError, RequestOutput, SamplingParams, ScoringParams
from dise_core.front.calibrated import fitted_settings
from dise_core.plugins.discovery import installed_catalog
from dise_core.scoring.calibration import Holding, Platt
from dise_core.testing import ToyPredictor
from tests.ascii_model import END, AsciiPredictor
from tests.calibrations import HOLDING, RECORD, made

GIVEN = HOLDING | {"texts": "given"}
OF_ASCII = {"model": "ascii", "fingerprint": None}
SHORT = SamplingParams(max_tokens=4, selector="response")


def written(folder: Path, record: object) -> Path:
    path = folder / "calibration.json"
    path.write_text(record if isinstance(record, str) else json.dumps(record))
    return path


def test_an_isotonic_map_is_linear_between_knots_and_constant_outside() -> None:
    calibration = made()
    for score, expected in [(-9, 0.1), (-4, 0.1), (-3.5, 0.25), (-2.5, 0.4), (-1.2, 0.8), (0, 0.9)]:
        assert calibration.probability(score) == pytest.approx(expected)
    assert calibration.probability(-math.inf) is None
    assert calibration.highest == 0.9


def test_platts_map_is_a_logistic_function_of_the_scores_it_was_fitted_on() -> None:
    map_ = Platt(slope=2.0, intercept=3.0, lowest_score=-500.0, highest_score=-1.0)
    scores = [-300.0, -5.0, -1.5, -1.0, 0.0]
    expected = [1 / (1 + math.exp(-(2 * min(score, -1) + 3))) for score in scores]
    assert map_.of(np.array(scores)) == pytest.approx(expected, rel=1e-9, abs=0)


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    calibration = Calibration.load(written(tmp_path, RECORD))
    assert calibration == made()
    assert calibration.to_dict() == RECORD
    assert calibration.digest == made().digest != made(num_right=61).digest


def test_outputs_have_their_probability_and_whether_they_abstain(tmp_path: Path) -> None:
    record = RECORD | {"holds_for": GIVEN}
    files = written(tmp_path, record), str(tmp_path / "calibration.json")
    for given in (made(holds_for=GIVEN), *files):
        llm = LLM(ToyPredictor(), calibration=given)
        outputs = [
            output
            for answer in llm.score([[1, 2]] * 9, [[i] for i in range(9)], finished=True)
            for output in answer.outputs
        ]
        for output in outputs:
            value = output.score.value
            knots = RECORD["map"]["scores"], RECORD["map"]["probabilities"]
            assert output.probability == np.interp(value, *knots)
            assert output.abstained == (value < -2.5)
            assert output.to_dict()["probability"] == output.probability
            assert output.to_dict()["abstained"] is output.abstained
        assert len({output.abstained for output in outputs}) == 2
    [answer] = LLM(ToyPredictor(), calibration=made()).generate([[1, 2]], SHORT)
    assert answer.outputs[0].probability is not None


def test_an_answer_without_a_score_has_no_probability_and_abstains() -> None:
    [answer] = LLM(
        ToyPredictor(), calibration=made(selector="response-text", holds_for=GIVEN)
    ).score([[1]], [[10]])
    assert (answer.outputs[0].probability, answer.outputs[0].abstained) == (None, True)


def test_without_a_calibration_or_threshold_both_are_none() -> None:
    [plain] = LLM(ToyPredictor()).score([[1, 2]], [[3]])
    record = plain.to_dict()["outputs"][0]
    assert (record["probability"], record["abstained"]) == (None, None)
    llm = LLM(ToyPredictor(), calibration=made(threshold=None, holds_for=GIVEN))
    [answer] = llm.score([[1, 2]], [[3]], finished=True)
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


def reason(answers: list[RequestOutput]) -> str | None:
    """Why no probability is told of an answer's outputs; None where one is."""
    for output in answers[0].outputs:
        assert (output.probability is None) == (output.uncalibrated is not None)
        assert output.to_dict().get("uncalibrated") == output.uncalibrated
    [why] = {output.uncalibrated for output in answers[0].outputs}
    return why


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"scorer": "shadow"}, "it was fitted with scorer dise, and this has shadow"),
        (
            {"scorer": "mc", "scorer_settings": {"num_samples": 2}},
            "with scorer dise, and this has mc",
        ),
        ({"selector": "last-10"}, "with selector response, and this has last-10"),
    ],
)
def test_other_scores_have_no_probability_and_say_why(asked: dict[str, Any], told: str) -> None:
    written_ones, given = LLM(ToyPredictor(), calibration=made()), made(holds_for=GIVEN)
    params = SamplingParams(max_tokens=4, **asked)
    assert told in str(reason(written_ones.generate([[1]], params)))
    llm = LLM(ToyPredictor(), calibration=given)
    assert told in str(reason(llm.score([[1]], [[2]], ScoringParams(**asked), finished=True)))


def test_other_settings_of_a_selector_have_no_probability_and_the_fitted_ones_apply() -> None:
    fitted = made(selector="answer", selector_settings={"pattern": "c"}, holds_for=GIVEN)
    llm = LLM(ToyPredictor(), calibration=fitted)
    [answer] = llm.score([[1]], [[2, 3, 2]], finished=True)
    assert answer.outputs[0].score.positions.tolist() == [3]
    assert answer.outputs[0].uncalibrated is None
    for settings, theirs in (({"pattern": "d"}, "answer {'pattern': 'd'}"), ({}, "answer")):
        asked = ScoringParams(selector="answer", selector_settings=settings)
        told = f"with selector answer {{'pattern': 'c'}}, and this has {theirs}"
        answers = llm.score([[1]], [[2, 3, 2]], asked, finished=True)
        assert str(reason(answers)).endswith(told)


def test_settings_of_its_selector_are_not_lent_to_the_one_that_is_asked_for() -> None:
    fitted = made(selector="answer", selector_settings={"pattern": "c"}, holds_for=GIVEN)
    asked = ScoringParams(selector="response")
    llm = LLM(ToyPredictor(), calibration=fitted)
    [answer] = llm.score([[1]], [[2, 3, 2]], asked, finished=True)
    assert answer.outputs[0].score.positions.tolist() == [1, 2, 3]


def test_a_file_of_several_scores_says_what_to_use_instead(tmp_path: Path) -> None:
    """As an older version fitted them."""
    parts = [{"scorer": "dise", "selector": "last-10", "weight": 1.5}]
    fit = {"scorer": "combined", "scorer_settings": {"parts": parts, "intercept": 0.5}}
    llm = LLM(ToyPredictor(), calibration=written(tmp_path, RECORD | fit))
    with pytest.raises(
        InputError, match=r"scorer 'combined' was taken out: take 'dise\+written', "
    ):
        llm.generate([[1]], SamplingParams(max_tokens=2))


def test_at_the_threshold_an_answer_is_given_and_just_below_it_is_not() -> None:
    least = made().threshold
    assert least is not None
    assert made().abstains(least.score) is False
    assert made().abstains(math.nextafter(least.score, -math.inf)) is True


def test_other_settings_of_a_scorer_are_named_and_an_unknown_one_is_refused() -> None:
    asked = ScoringParams(scorer="mc", scorer_settings={"num_samples": 4}, selector="response")
    other = made(scorer="mc", scorer_settings={"num_samples": 3}, holds_for=GIVEN)
    llm = LLM(ToyPredictor(), calibration=other)
    answers = llm.score([[1]], [[2]], asked, finished=True)
    assert "with scorer_settings.num_samples 3, and this has 4" in str(reason(answers))
    unknown = LLM(ToyPredictor(), calibration=made(scorer="nothing"))
    with pytest.raises(InputError, match="unknown scorer 'nothing'"):
        unknown.score([[1]], [[2]])


ROUNDS = {"reviser": "remask", "reviser_settings": {"rounds": 2}}
REGEX = {"constraint": "regex", "constraint_settings": {"regex": "[0-9]{1,2}"}}
OTHER_REGEX = REGEX | {"constraint_settings": {"regex": "[0-9]{1,3}"}}
DRAWN = {"temperature": 0.7}
SEQUENTIAL = {"unmasking": "sequential"}
"""It commits one token a step, unless a request says otherwise."""
TIMED = {"unmasking_settings": {"eps": 1e-3}}


@pytest.mark.parametrize(
    ("fitted", "asked", "told"),
    [
        ([{}], {"seed": 7, "length": "fixed", "cache": "none"}, None),
        ([{}], ROUNDS, "with reviser unset, and this has remask"),
        ([ROUNDS], {}, "with reviser remask, and this has unset"),
        (
            [ROUNDS],
            ROUNDS | {"reviser_settings": {"rounds": 3}},
            "with reviser_settings.rounds 2, and this has 3",
        ),
        ([{"reviser": "remask"}], {"reviser": "remask", "reviser_settings": {"rounds": 4}}, None),
        ([{}], REGEX, "with constraint unset, and this has regex"),
        ([REGEX], {}, "with constraint regex, and this has unset"),
        ([REGEX], REGEX, None),
        ([REGEX], OTHER_REGEX, "constraint_settings.regex [0-9]{1,2}, and this has [0-9]{1,3}"),
        ([DRAWN, {}], {"temperature": 0.3}, None),
        ([DRAWN, {}], {"temperature": 1.0}, "with temperature 0.7 or 0.0, and this has 1.0"),
        ([{"steps": 4}], {"tokens_per_step": 1}, None),
        ([SEQUENTIAL], SEQUENTIAL, None),
        ([SEQUENTIAL | {"tokens_per_step": 2}], SEQUENTIAL | {"tokens_per_step": 1}, None),
        ([SEQUENTIAL], SEQUENTIAL | {"tokens_per_step": 2}, "tokens_per_step 1, and this has 2"),
        ([{}], TIMED, "with unmasking_settings.eps unset, and this has 0.001"),
        ([TIMED], TIMED, None),
        ([{}], {"cfg_scale": 1.0}, "with cfg_scale 0.0, and this has 1.0"),
        ([DRAWN], DRAWN | {"n": 3}, None),
        ([DRAWN], DRAWN | {"best_of": 3}, "with best_of unset, and this has 1 of 3"),
        ([DRAWN | {"best_of": 3}], DRAWN | {"best_of": 3}, None),
    ],
)  # fmt: skip
def test_answers_that_are_made_otherwise_have_no_probability_and_say_why(
    fitted: list[dict[str, Any]], asked: dict[str, Any], told: str | None
) -> None:
    catalog, common = installed_catalog(), {"max_tokens": 4, "selector": "response"}
    settings = fitted_settings([common | each for each in fitted], catalog)
    holding = json.loads(Holding(texts="written", settings=settings).model_dump_json())
    llm = LLM(AsciiPredictor(), calibration=made(**OF_ASCII, holds_for=holding))
    why = reason(llm.generate("hi", SamplingParams.model_validate(common | asked)))
    assert why == told if told is None else told in str(why)


@pytest.mark.parametrize(
    ("settings", "told"), [({}, None), ({"eps": [0.001]}, "with eps 0.001, and this has unset")]
)
def test_a_file_of_before_eps_was_a_setting_holds_where_it_was_not_set(
    settings: dict[str, Any], told: str | None
) -> None:
    policy = {"unmasking": ["threshold"], "unmasking_settings": [{"threshold": 0.9}]}
    holding = HOLDING | {"settings": {"max_tokens": [4], **policy, **settings}}
    llm = LLM(AsciiPredictor(), calibration=made(**OF_ASCII, holds_for=holding))
    params = SamplingParams(max_tokens=4, selector="response", unmasking="threshold")
    why = reason(llm.generate("hi", params))
    assert why == told if told is None else told in str(why)


@pytest.mark.parametrize(
    ("holding", "ask", "told"),
    [
        (HOLDING, lambda llm: llm.generate("hi", SHORT), None),
        (HOLDING, lambda llm: llm.score("hi", "a"), "with texts written, and this has given"),
        (GIVEN, lambda llm: llm.generate("hi", SHORT), "with texts given, and this has written"),
        (GIVEN, lambda llm: llm.score("hi", "a"), None),
        (GIVEN, lambda llm: llm.score("hi", [40]), "with finished True, and this has False"),
        (GIVEN, lambda llm: llm.score("hi", [40], finished=True), None),
        (GIVEN, lambda llm: llm.score("hi", [40, END]), None),
        (GIVEN, lambda llm: llm.score("", "a"), "with prompted True, and this has False"),
        (GIVEN | {"prompted": False}, lambda llm: llm.score("", "a"), None),
        (GIVEN | {"prompted": False}, lambda llm: llm.score("hi", "a"), "prompted False, and this"),
        (GIVEN, lambda llm: [llm.rank("hi", ["a", "b"])], "with finished True, and this has False"),
        (GIVEN | {"finished": False}, lambda llm: [llm.rank("hi", ["a", "b"])], None),
        (GIVEN, lambda llm: llm.score("hi", "a", finished=False), "finished True, and this has"),
        (HOLDING, lambda llm: llm.fill("hi", "a", SHORT), "and this has written into a gap"),
        (HOLDING | {"chat": True}, lambda llm: llm.generate("hi", SHORT), "chat True, and this"),
    ],
)  # fmt: skip
def test_texts_of_another_kind_have_no_probability_and_say_why(
    holding: dict[str, Any], ask: Callable[[LLM], list[RequestOutput]], told: str | None
) -> None:
    llm = LLM(AsciiPredictor(), calibration=made(**OF_ASCII, holds_for=holding))
    why = reason(ask(llm))
    assert why == told if told is None else told in str(why)


def test_a_number_to_stop_at_is_refused_where_the_calibration_does_not_hold() -> None:
    settings = {"temperature": [0.7]}
    llm = LLM(ToyPredictor(), calibration=made(holds_for=HOLDING | {"settings": settings}))
    asked = SamplingParams(max_tokens=4, temperature=0.7, best_of=4, stop_at=0.5)
    with pytest.raises(InputError, match=r"max_tokens 128, and this has 4"):
        llm.generate([[1, 2]], asked)
    settings["max_tokens"] = [4]
    llm = LLM(ToyPredictor(), calibration=made(holds_for=HOLDING | {"settings": settings}))
    [answer] = llm.generate([[1, 2]], asked)
    assert "with best_of unset, and this has 1 of 4" in str(answer.outputs[0].uncalibrated)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"model": "other"}, "it was fitted with model other, and this has toy"),
        ({"fingerprint": "0" * 16}, "with fingerprint 0000000000000000, and this has "),
    ],
)
def test_another_model_is_refused_by_name(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as error:
        LLM(ToyPredictor(), calibration=made(**changes))
    assert told in str(error.value)
    assert LLM(ToyPredictor(), calibration=made(fingerprint=None)).planner.calibration is not None


FIGURES = (
    '"num_bins":10,"ece":0.046,"adaptive_ece":0.044,"smooth_ece":0.04,"brier":0.102,'
    '"brier_skill":0.539,"auroc":0.928'
)
OLD = (
    '{"map":{"method":"platt","slope":3.200895234709079,"intercept":11.364495516198101,'
    '"lowest_score":-6.772275156122734,"highest_score":0.06603673904889673},"num_labels":400,'
    '"num_right":268,"num_questions":400,"figures":{' + FIGURES + '},"threshold":{"score":'
    '-3.0757015262208225,"rule":"sgr","max_risk":0.1,"confidence":0.95,"num_labels":400,'
    '"coverage":0.5025,"risk":0.05472636815920398,"bound":0.09580919277880472},"model":"toy",'
    '"fingerprint":null,"source":"g.jsonl","version":2,"judge":null,"scorer":"dise",'
    '"selector":"last-3","scorer_settings":{},"holds_for":{"texts":"written","prompted":true,'
    '"finished":true,"chat":null,"settings":{"max_tokens":[4],"temperature":[0.7]}},"fields":{}}'
)
"""Written by `dise calibrate` of 0.1.0, its figures cut short."""


def test_a_file_of_the_last_release_holds_as_it_did(tmp_path: Path) -> None:
    llm = LLM(ToyPredictor(), calibration=written(tmp_path, OLD))
    asked = SamplingParams(max_tokens=4, temperature=0.7, seed=0)
    [answer] = llm.generate([[1, 2]], asked)
    [output] = answer.outputs
    assert (output.scorer, output.selector) == ("dise", "last-3")
    log_odds = 3.200895234709079 * output.score.value + 11.364495516198101
    assert output.probability == pytest.approx(1 / (1 + math.exp(-log_odds)))
    assert output.abstained == (output.score.value < -3.0757015262208225)
    other = llm.generate([[1, 2]], asked.model_copy(update={"temperature": 1.0}))
    assert reason(other) == "it was fitted with temperature 0.7, and this has 1.0"


def test_a_setting_that_requests_no_longer_have_is_not_taken_for_their_own(tmp_path: Path) -> None:
    old = OLD.replace('"max_tokens":[4]', '"max_tokens":[4],"early_exit":[true]')
    llm = LLM(ToyPredictor(), calibration=written(tmp_path, old))
    answers = llm.generate([[1, 2]], SamplingParams(max_tokens=4, temperature=0.7))
    assert reason(answers) == "it was fitted with early_exit True, and this has unset"
