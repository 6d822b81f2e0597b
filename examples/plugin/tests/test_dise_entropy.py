"""The plugin keeps DiSE's promises, works by name, and computes what it says."""

import numpy as np
import pytest
from dise_entropy import Behind, EveryK, MeanEntropy

from dise_core import LLM, ScoringParams
from dise_core.testing import ToyPredictor, check_scorer, check_selector


def test_the_scorer_conforms() -> None:
    check_scorer(MeanEntropy())


def test_the_selectors_conform() -> None:
    check_selector(EveryK(k=3))
    check_selector(Behind(mark="d"))


def test_behind_a_mark_later_tokens_count_more() -> None:
    toy = ToyPredictor()
    params = ScoringParams(selector="behind", selector_settings={"mark": "d"})
    [answer] = LLM(toy).score("ab", "cdefg", params, finished=False)
    logits = toy.logits(np.arange(7))[[4, 5, 6], :]
    logprobs = logits[np.arange(3), [4, 5, 6]] - np.log(np.exp(logits).sum(axis=1))
    assert answer.outputs[0].score.value == pytest.approx(logprobs @ [5, 6, 7] / 18, abs=1e-6)


def test_the_score_is_minus_the_mean_entropy() -> None:
    toy = ToyPredictor()
    prompt, response = [1, 2], [3, 4, 5, 6, 7]
    params = ScoringParams(scorer="mean-entropy", selector="every-2")
    [answer] = LLM(toy).score([prompt], [response], params)
    logits = toy.logits(np.array(prompt + response))[[2, 4, 6]]
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    expected = (probabilities * np.log(probabilities)).sum(axis=1).mean()
    assert answer.outputs[0].score.value == pytest.approx(expected)
