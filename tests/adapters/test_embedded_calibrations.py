"""The calibrations that the embedded models bring, and when they say nothing."""

import numpy as np
import pytest
from embedded_models.label import is_right, prompts

from dise_core import LLM, Calibration, SamplingParams, ScoringParams

PROBLEM, ANSWER = "83,18,75 -> 10", "18+75=93,93-83=10<answer>18+75-83</answer>"
SHORT = SamplingParams(max_tokens=48)


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM("countdown")


@pytest.mark.parametrize("model", ["countdown", "countdown-blocks", "word-problems"])
def test_every_embedded_model_tells_how_likely_its_answer_is_right(model: str) -> None:
    [asked] = prompts(model, 1)
    [answer] = LLM(model).generate(asked, SHORT)
    [output] = answer.outputs
    assert output.probability is not None
    assert 0 < output.probability < 1
    assert output.abstained is None


def test_sure_answers_to_new_sentences_are_called_as_likely_right_as_they_are() -> None:
    """Of 60 sentences, so the share of right ones among the surest is known to about 0.08."""
    asked = prompts("word-problems", 200)[::3][:60]
    params = SamplingParams(max_tokens=24, block_length=24, tokens_per_step=1)
    outputs = [answer.outputs[0] for answer in LLM("word-problems").generate(asked, params)]
    sure = [
        (output.probability, is_right(prompt, output.text))
        for prompt, output in zip(asked, outputs, strict=True)
        if (output.score.token_probability or 0) >= 0.95
    ]
    probabilities, right = np.array(sure, np.float64).T
    assert len(sure) > 20
    assert abs(probabilities.mean() - right.mean()) < 0.2
    assert probabilities.max() < 0.8


@pytest.mark.parametrize(
    "changes",
    [
        {"scorer": "shadow"},
        {"selector": "response-text"},
        {"reviser": "remask"},
        {"best_of": 2, "temperature": 1.0, "stop_at": -0.1},
        {"temperature": 3.0},
        {"tokens_per_step": 8},
        {"constraint": "choice", "constraint_settings": {"choices": [ANSWER, "1+2=3"]}},
    ],
)
def test_what_a_models_own_calibration_is_not_for_has_no_probability(
    llm: LLM, changes: dict[str, object]
) -> None:
    [answer] = llm.generate(PROBLEM, SHORT.model_copy(update=changes))
    assert answer.outputs[0].probability is None


def test_a_given_text_has_a_probability_unless_it_goes_on_or_answers_nothing(llm: LLM) -> None:
    [ended], [goes_on] = (llm.score(PROBLEM, ANSWER, finished=its) for its in (None, False))
    assert ended.outputs[0].probability is not None
    assert goes_on.outputs[0].probability is None
    ranked = llm.rank(PROBLEM, [ANSWER, "1+1=2"])
    assert [output.probability for output in ranked.outputs] == [None, None]
    [unprompted] = llm.score("", "1+2=3")
    assert unprompted.outputs[0].probability is None
    [filled] = llm.fill(PROBLEM + "<answer>18+75", "83", SamplingParams(max_tokens=1))
    assert filled.outputs[0].probability is None


def test_written_and_given_texts_have_a_fit_of_their_own(llm: LLM) -> None:
    """One text is as likely right whoever wrote it, by what each fit knows, or nearly so."""
    [written] = llm.generate(PROBLEM, SHORT)
    [given] = llm.score(PROBLEM, written.outputs[0].text)
    told = [written.outputs[0].probability, given.outputs[0].probability]
    fits = {own.holds_for.texts: own for own in llm.planner.calibrations.own}
    fits_of = ("written", "given")
    values = [written.outputs[0].score.value, given.outputs[0].score.value]
    assert told == [fits[kind].probability(v) for kind, v in zip(fits_of, values, strict=True)]


def test_the_calibration_that_a_user_names_replaces_the_models_own(llm: LLM) -> None:
    calibrations = llm.planner.calibrations.own
    own = next(fit for fit in calibrations if fit.holds_for.texts == "given")
    named = own.model_copy(update={"scorer": "shadow", "selector": "full"})
    calibration = Calibration.model_validate(named.model_dump())
    [answer] = LLM(llm.predictor, calibration=calibration).score(PROBLEM, ANSWER, ScoringParams())
    assert (answer.outputs[0].scorer, answer.outputs[0].selector) == ("shadow", "full")
    assert answer.outputs[0].probability is not None
