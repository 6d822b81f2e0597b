"""DAEDAL against its published loop, written naively on the toy model's logits."""

import math
from typing import Any

import numpy as np
import pytest

from dise_core import LLM, SamplingParams
from dise_core.arrays import Floats
from dise_core.scoring.sequence_scorer import SequenceScorer
from dise_core.testing.toy_model import END, MASK
from dise_strategies.lengths.daedal import DAEDAL
from dise_strategies.scorers.dise import DiSE
from dise_strategies.selectors.whole import Full
from tests.scripted_model import generated
from tests.strategies.ending_model import PROMPT, EndingModel


def naive_daedal(
    model: EndingModel, length: int, block_length: int, settings: dict[str, Any]
) -> tuple[list[int], list[float]]:
    """Return the response and the log-probabilities that its tokens had when they were written: one
    sequence, lists and loops, as the published code does it.
    """
    limit = min(settings["max_gen_length"], model.info.max_length - len(PROMPT))
    window, grow = settings["eos_check_tokens"], settings["expansion_factor"]
    response, told = [MASK] * length, [math.nan] * length

    def end_confidence(p: Floats) -> float:
        found = [float(row[END]) for row in p[::-1] if int(np.argmax(row)) == END][:window]
        return sum(found) / window

    while (
        end_confidence(model.probabilities(response)) < settings["eos_confidence_threshold"]
        and len(response) < limit
    ):
        response += [MASK] * min(grow, limit - len(response))
    response += [END] * min(window // 2, limit - len(response))
    told += [math.nan] * (len(response) - length)
    start = 0
    while start < len(response):
        inside = [
            i for i in range(start, min(start + block_length, len(response))) if response[i] == MASK
        ]
        if not inside:
            start += block_length
            continue
        p = model.probabilities(response)
        sure = end_confidence(p)
        p[:, MASK] = -1
        best = {i: (float(p[i].max()), int(np.argmax(p[i]))) for i in inside}
        filled = [i for i in inside if best[i][0] > settings["high_conf_threshold"]]
        filled = filled or [max(inside, key=lambda i: best[i][0])]
        rest = [
            i for i in inside if i not in filled and best[i][0] < settings["low_conf_threshold"]
        ]
        for i in filled:
            response[i], told[i] = best[i][1], math.log(best[i][0])
        if sure < settings["expand_eos_confidence_threshold"] and len(response) < limit and rest:
            worst = min(rest, key=lambda i: best[i][0])
            response[worst : worst + 1] = [MASK] * grow
            told[worst : worst + 1] = [math.nan] * grow
            del told[limit:]
            del response[limit:]  # what no longer fits falls off the end
    return response, told


def settings(**changes: Any) -> dict[str, Any]:
    defaults = {
        "max_gen_length": 40, "high_conf_threshold": 0.5, "low_conf_threshold": 0.2,
        "expansion_factor": 3,
        "eos_confidence_threshold": 0.5, "expand_eos_confidence_threshold": 0.9,
        "eos_check_tokens": 6,
    }  # fmt: skip
    return defaults | changes


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("end_bonus", "changes"),
    [
        (0.0, {}),
        (3.0, {}),
        (6.0, {}),
        (0.0, {"max_gen_length": 12}),
        (2.0, {"max_gen_length": 19, "high_conf_threshold": 0.9, "low_conf_threshold": 0.9}),
        (4.0, {"max_gen_length": 15, "low_conf_threshold": 0.8, "eos_check_tokens": 2}),
        (2.0, {"low_conf_threshold": 0.6}),
        (2.0, {"high_conf_threshold": 0.99, "low_conf_threshold": 0.9, "expansion_factor": 8}),
        (4.0, {"eos_check_tokens": 1}),
    ],
)
def test_it_writes_what_the_published_loop_writes(
    end_bonus: float, seed: int, changes: dict[str, Any]
) -> None:
    chosen = settings(**changes)
    model = EndingModel(end_bonus, seed)
    params = SamplingParams(max_tokens=8, block_length=5, length="daedal", length_settings=chosen)
    [answer] = LLM(model).generate([PROMPT], params)
    response, told = naive_daedal(EndingModel(end_bonus, seed), 8, 5, chosen)
    [output] = answer.outputs
    assert list(output.token_ids) == response
    assert output.writing is not None
    np.testing.assert_allclose(output.writing.logprobs[len(PROMPT) :], told, atol=1e-5)


def test_the_cases_grow_in_both_stages_and_stop_for_both_reasons() -> None:
    """What the test above would not notice: that its cases are all of one kind."""
    reasons, lengths = set(), set()
    params = SamplingParams(
        max_tokens=8, block_length=5, length="daedal", length_settings=settings()
    )
    for end_bonus in (0.0, 3.0, 6.0):
        for seed in range(4):
            [answer] = LLM(EndingModel(end_bonus, seed)).generate([PROMPT], params)
            [output] = answer.outputs
            reasons.add(output.stopped_by)
            lengths.add(len(output.token_ids))
            assert sum(step.nfe for step in output.trace) < answer.usage.nfe
            assert output.trace[0].num_tokens == 8
    assert reasons == {"eos_confidence", "max_gen_length"}
    assert len(lengths) > 3


def test_the_model_ends_the_growth_where_its_context_is_full() -> None:
    controller, scorer = DAEDAL(eos_check_tokens=6), SequenceScorer(DiSE(), Full())
    read = EndingModel(0.0, 0).read
    result, _ = generated(controller, read, 20, scorer, max_tokens=8, block_length=5)
    assert (len(result.sequence), result.stopped_by) == (20, "context")


def test_all_settings_carry_the_published_names_and_values() -> None:
    assert DAEDAL().model_dump() == {
        "max_gen_length": 2048, "high_conf_threshold": 0.9, "low_conf_threshold": 0.1,
        "expansion_factor": 8,
        "eos_confidence_threshold": 0.5, "expand_eos_confidence_threshold": 0.9,
        "eos_check_tokens": 32,
    }  # fmt: skip
