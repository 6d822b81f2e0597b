"""The scorer "written": what it reads, what it costs, and where it is refused. That the writing is
right: tests/adapters/test_writing.py, tests/core/test_history.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dise_core import LLM, Noise, SamplingParams
from dise_core.arrays import Floats, Ids
from dise_core.plugins.discovery import installed_catalog
from dise_core.testing import ToyPredictor, check_scorer
from dise_core.testing.toy_model import END, MASK
from dise_strategies.lengths.dise_flexible import STEPS_APART
from dise_strategies.scorers.written import Written
from tests.reference_writing import NaiveWriting

SIGNALS = ("logprob", "entropy", "margin")
PROMPT = [1, 2, 3]


class Ending(ToyPredictor):
    """The toy model, which ends the likelier the longer the text is."""

    def logits(self, ids: Ids) -> Floats:
        logits = super().logits(ids)
        logits[:, END] += 0.7 * np.arange(len(ids))
        return logits


def naive(toy: ToyPredictor, params: SamplingParams) -> NaiveWriting:
    noise = Noise.for_request(params.seed or 0, np.array(PROMPT), 0)
    text = [*PROMPT, *[MASK] * params.max_tokens]
    policy = installed_catalog().unmasking_policy(params.unmasking, params.unmasking_settings)
    return NaiveWriting(
        lambda ids: toy.logits(np.array(ids)), toy.info, params, policy, noise, text, 3
    )


@pytest.mark.parametrize("signal", SIGNALS)
def test_it_conforms(signal: Any) -> None:
    check_scorer(Written(signal=signal))


@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize(
    ("unmasking", "edits"),
    [("low-confidence", {}), ("llada2-editing", {"threshold": 0.1, "editing_threshold": 0.05})],
)
def test_it_costs_no_pass_and_changes_nothing_else(
    signal: str, unmasking: str, edits: dict[str, Any]
) -> None:
    llm, settings = LLM(ToyPredictor()), {"signal": signal}
    plain = SamplingParams(
        max_tokens=12, temperature=0.8, seed=4, unmasking=unmasking, unmasking_settings=edits
    )
    update = {"scorer": "written", "selector": "response", "scorer_settings": settings}
    params = plain.model_copy(update=update)
    [answer], [other] = llm.generate(PROMPT, params), llm.generate(PROMPT, plain)
    [output] = answer.outputs
    expected = naive(ToyPredictor(), params)
    num_steps, places = expected.fill(3), range(3, 15)
    assert output.token_ids == other.outputs[0].token_ids
    assert (answer.usage.nfe, other.usage.nfe) == (num_steps, num_steps + 1)
    values = {
        "logprob": [expected.logprobs[at] for at in places],
        "entropy": [-expected.commits[at].entropy for at in places],
        "margin": [expected.commits[at].margin for at in places],
    }[signal]
    assert any(values)
    for aggregate, whole in (("mean", np.mean), ("least", np.min), ("sum", np.sum)):
        update = {"scorer_settings": settings | {"aggregate": aggregate}}
        [answer] = llm.generate(PROMPT, params.model_copy(update=update))
        assert answer.outputs[0].score.value == pytest.approx(whole(values), abs=1e-5)
    [reported] = llm.generate(
        PROMPT, SamplingParams(**params.model_dump(include=params.model_fields_set), logprobs=0)
    )
    assert reported.usage.nfe == num_steps + 1


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_algorithm_1_is_led_by_it_and_keeps_what_it_kept(temperature: float) -> None:
    settings = {"max_iterations": 4, "mask_size": 3, "patience": 4}
    params = SamplingParams(
        max_tokens=9, block_length=4, temperature=temperature, seed=6, scorer="written",
        selector="response-text", length="dise-flexible", length_settings=settings,
    )  # fmt: skip
    loop = naive(Ending(seed=8), params)
    loop.fill(3)
    kept = [at for at in range(len(loop.text)) if at < 3 or loop.text[at] != END]
    assert 3 < len(kept) < len(loop.text)
    loop.logprobs = {now: loop.logprobs[at] for now, at in enumerate(kept) if at >= 3}
    loop.text = [loop.text[at] for at in kept]
    texts = []
    for t in range(1, 5):
        if t > 1:
            start = len(loop.text) - min(3 + t - 2, len(loop.text) - 3)
            loop.text = loop.text[:start] + [MASK] * (len(loop.text) - start + 1)
            loop.fill(start, t * STEPS_APART)
        told = [loop.logprobs[at] for at in range(3, len(loop.text))]
        counted = [p for p, token in zip(told, loop.text[3:], strict=True) if token != END]
        texts.append((float(np.mean(counted)), list(loop.text), told))
    [answer] = LLM(Ending(seed=8)).generate(PROMPT, params)
    [output] = answer.outputs
    score, ids, told = max(texts, key=lambda text: text[0])
    assert [*PROMPT, *output.token_ids] == ids
    assert output.score.value == pytest.approx(score, abs=1e-5)
    assert [token.written for token in output.tokens] == pytest.approx(told, abs=1e-5)
    assert [step.score for step in output.trace] == pytest.approx(
        [score for score, _, _ in texts], abs=1e-5
    )


def test_dise_plus_written_is_their_plain_sum_in_the_pass_of_dise() -> None:
    toy = ToyPredictor()
    params = SamplingParams(max_tokens=11, temperature=0.7, seed=3, selector="last-4")
    answers = {
        name: LLM(toy).generate([1, 2, 3], params.model_copy(update={"scorer": name}))[0]
        for name in ("dise", "written", "dise+written")
    }
    [read], [wrote], [both] = (answer.outputs for answer in answers.values())
    assert both.score.value == read.score.value + wrote.score.value
    writing = wrote.writing
    assert writing is not None
    places = both.score.positions
    logits = toy.logits(np.array([1, 2, 3, *both.token_ids]))
    logprobs = logits - np.logaddexp.reduce(logits, axis=1)[:, None]
    ids = np.array([1, 2, 3, *both.token_ids])
    by_hand = logprobs[places, ids[places]].mean() + writing.logprobs[places].mean()
    assert both.score.value == pytest.approx(by_hand, abs=1e-5)
    assert answers["dise+written"].usage.nfe == answers["dise"].usage.nfe
    assert installed_catalog().scorer("written") == Written()
