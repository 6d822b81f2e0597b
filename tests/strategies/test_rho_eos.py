"""rho-EOS against its loop, written naively on the toy model's logits."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

from dise_core import LLM, SamplingParams
from dise_core.testing.toy_model import END, MASK
from dise_strategies.lengths.rho_eos import RhoEOS
from tests.strategies.ending_model import PROMPT, EndingModel

DEFAULTS: dict[str, Any] = {
    "low": 0.4, "high": 0.6, "step": 3, "max_gen_length": 40, "until_step": 9, "window": 5,
    "high_conf_threshold": 0.5,
}  # fmt: skip


def naive_rho_eos(
    model: EndingModel, length: int, settings: dict[str, Any]
) -> tuple[list[int], list[int]]:
    """Return the response, and the lengths that it had: lists and loops."""
    response, lengths = [MASK] * length, [length]
    limit = min(settings["max_gen_length"], model.info.max_length - len(PROMPT))
    for step in itertools.count(1):
        if MASK not in response:
            return response, lengths
        p = model.probabilities(response)
        expected = [int(np.argmax(row)) for row in p]
        masks = [i for i, token in enumerate(response) if token == MASK]
        rho = sum(expected[i] == END for i in masks) / len(masks)
        p[:, MASK] = -1
        first = masks[0] // settings["window"]
        inside = [i for i in masks if i // settings["window"] == first]
        sure = [i for i in inside if p[i].max() > settings["high_conf_threshold"]]
        for i in sure or [max(inside, key=lambda i: p[i].max())]:
            response[i] = int(np.argmax(p[i]))
        if step > settings["until_step"]:
            continue
        gap = settings["low"] - rho if rho < settings["low"] else rho - settings["high"]
        factor = 2.0 ** (math.ceil(round(gap * 10, 6)) - 1)
        for _ in range(settings["step"] * int(min(factor, 8)) if gap > 0 else 0):
            if rho < settings["low"] and len(response) < limit:
                response.append(MASK)
            elif rho > settings["high"] and response[-1] == MASK:
                response.pop()
        lengths.append(len(response))


CASES: list[tuple[float, dict[str, Any]]] = [
    (0.0, {}),
    (2.5, {}),
    (3.0, {"low": 0.7, "high": 0.8}),
    (6.0, {}),
    (4.0, {"until_step": 0}),
    (0.0, {"max_gen_length": 12}),
    (4.0, {"low": 0.1, "high": 0.2}),
    (2.0, {"high_conf_threshold": 0.9, "window": 32, "step": 1}),
]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("end_bonus", "changes"), CASES)
def test_it_writes_what_a_naive_loop_writes(
    end_bonus: float, seed: int, changes: dict[str, Any]
) -> None:
    settings = DEFAULTS | changes
    params = SamplingParams(max_tokens=10, length="rho-eos", length_settings=settings)
    [answer] = LLM(EndingModel(end_bonus, seed)).generate([PROMPT], params)
    expected, lengths = naive_rho_eos(EndingModel(end_bonus, seed), 10, settings)
    [output] = answer.outputs
    assert list(output.token_ids) == expected
    changed = [length for length, _ in itertools.groupby(lengths)][1:]
    assert [step.num_tokens for step in output.trace] == changed


def test_the_cases_grow_and_shrink_and_stop_for_both_reasons() -> None:
    """What the test above would not notice: that its cases are all of one kind."""
    has_grown, has_shrunk, reasons = set(), set(), set()
    for (end_bonus, changes), seed in itertools.product(CASES, range(4)):
        params = SamplingParams(max_tokens=10, length="rho-eos", length_settings=DEFAULTS | changes)
        [answer] = LLM(EndingModel(end_bonus, seed)).generate([PROMPT], params)
        [output] = answer.outputs
        lengths = [10, *(step.num_tokens for step in output.trace)]
        has_grown |= {after > before for before, after in itertools.pairwise(lengths)}
        has_shrunk |= {after < before for before, after in itertools.pairwise(lengths)}
        reasons.add(output.stopped_by)
        assert sum(step.nfe for step in output.trace) < answer.usage.nfe
    assert has_grown == has_shrunk == {True, False}
    assert reasons == {"density", "max_gen_length"}


def test_the_thresholds_are_those_of_the_paper_and_the_rest_of_the_published_scripts() -> None:
    assert RhoEOS().model_dump() == {
        "low": 0.4, "high": 0.6, "step": 8, "max_gen_length": 2048, "until_step": 64, "window": 32,
        "high_conf_threshold": 0.9,
    }  # fmt: skip
