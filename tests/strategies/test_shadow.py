"""The scorer "shadow": each token hidden alone, all in one pass. What models read of shadows:
tests/adapters/test_streams.py.
"""

from __future__ import annotations

import numpy as np
import pytest

from dise_core import LLM, BlockCausal, ScoringParams
from dise_core.models.attention import BIDIRECTIONAL, Attention
from dise_core.testing import ToyPredictor
from dise_core.testing.toy_model import END, MASK


@pytest.mark.parametrize("attention", [BIDIRECTIONAL, BlockCausal(4)], ids=str)
def test_the_score_is_that_of_one_hidden_token_at_a_time(attention: Attention) -> None:
    toy = ToyPredictor(attention=attention)
    params = ScoringParams(scorer="shadow", selector="last-2")
    [answer] = LLM(toy).score(["abc"], ["defg"], params, finished=False)
    expected = []
    for position in (5, 6):
        ids = np.array([*range(7), END] if toy.info.block_length else range(7))
        ids[position] = MASK
        logits = toy.logits(ids)[position]
        expected.append(logits[position] - np.logaddexp.reduce(logits))
    assert answer.outputs[0].score.value == pytest.approx(np.mean(expected), abs=1e-6)
    assert answer.usage.nfe == 1  # the report on every token reads the same text


def test_texts_that_are_scored_together_get_the_scores_and_costs_that_they_get_alone() -> None:
    llm, random = LLM("countdown-blocks"), np.random.default_rng(2)
    prompts = [random.integers(0, 10, 4).tolist() for _ in range(3)]
    responses = [random.integers(0, 10, length).tolist() for length in (3, 9, 17)]
    params = ScoringParams(scorer="shadow", selector="last-5")
    together = llm.score(prompts, responses, params)
    for prompt, response, answer in zip(prompts, responses, together, strict=True):
        [alone] = llm.score([prompt], [response], params)
        value = alone.outputs[0].score.value
        assert answer.outputs[0].score.value == pytest.approx(value, abs=1e-5)
        computed = 1 + min(5, len(response)) / (4 + len(response))
        assert answer.usage.nfe_computed == pytest.approx(computed)
