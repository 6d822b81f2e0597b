"""The scorer duel: its likelihoods are those of a distribution over all texts."""

from __future__ import annotations

import numpy as np
import pytest

from dise_core import LLM, BlockCausal, InputError, SamplingParams, ScoringParams
from dise_core.plans.plan import drive
from dise_core.plugins.discovery import installed_catalog
from dise_core.scoring.scorer import Scorer
from dise_core.testing import ToyPredictor
from dise_core.testing.toy_model import MASK
from dise_strategies.scorers.duel import Duel
from tests.exact_toy import ExactToy, all_texts

POLICIES = [
    name
    for name, entry in installed_catalog().unmasking_policies.items()
    if name not in ("random", "origin") and not entry.load().edits
]


def duel(**settings: object) -> Scorer:
    """Return the scorer with these settings."""
    return installed_catalog().scorer("duel", settings)


FULL, BLOCKS = ExactToy(), ExactToy(block_length=2)


@pytest.mark.parametrize("tokens_per_step", [1, 2])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_likelihoods_of_all_texts_sum_to_1(policy: str, tokens_per_step: int) -> None:
    settings = {"threshold": 0.5} if policy in ("threshold", "sub-blocks") else {}
    for toy, block_length in ((FULL, 2), (FULL, 4), (BLOCKS, None)):
        scorer = duel(
            unmasking=policy,
            unmasking_settings=settings,
            tokens_per_step=tokens_per_step,
            block_length=block_length,
        )
        values = [toy.score(scorer, toy.text([1, *ids], 1))[0].value for ids in all_texts(4)]
        assert np.exp(values).sum() == pytest.approx(1, abs=1e-9)


def test_the_likelihood_is_that_of_the_loop_written_down() -> None:
    ids = [1, 0, 2, 2]
    canvas, hidden, total = [1, 3, 3, 3], [1, 2, 3], 0.0
    while hidden:
        probabilities = np.exp(FULL.logits(np.array(canvas)))
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        surest = max(hidden, key=lambda at: probabilities[at, :3].max())
        total += FULL.logprobs(canvas)[surest, ids[surest]]
        canvas[surest] = ids[surest]
        hidden.remove(surest)
    score, nfe = FULL.score(duel(block_length=4), FULL.text(ids, 1))
    assert (score.value, nfe) == (pytest.approx(total, abs=1e-12), 3)
    assert score.log_likelihood == score.value
    assert score.perplexity == pytest.approx(np.exp(-total / 3))
    assert score.token_probability == pytest.approx(np.exp(total / 3))


@pytest.mark.parametrize("ids", all_texts(5)[::40])
def test_a_block_causal_text_is_replayed_block_by_block_in_the_passes_of_one(
    ids: list[int],
) -> None:
    """The first block begins in the prompt, the last one is not full."""
    toy, scorer = ExactToy(block_length=3), duel()
    score, nfe = toy.score(scorer, toy.text([0, *ids, 1], 1))
    prefixes = (toy.text([0, *ids[:2]], 1), toy.text([0, *ids], 3), toy.text([0, *ids, 1], 6))
    alone = sum(toy.score(scorer, text)[0].value for text in prefixes)
    assert (score.value, nfe) == (pytest.approx(alone, abs=1e-12), 3)


def test_the_selector_chooses_among_the_terms_of_the_whole_replay() -> None:
    llm = LLM(ToyPredictor())
    scores = {}
    for selector in ("response", "response-first-2", "last-3"):
        for aggregate in ("sum", "mean"):
            settings = {"unmasking": "margin", "aggregate": aggregate}
            params = ScoringParams(
                scorer="duel", scorer_settings=settings, selector=selector, logprobs=None
            )
            [answer] = llm.score(["abc"], ["defgh"], params)
            scores[selector, aggregate] = answer.outputs[0].score
            assert answer.usage.nfe == 5
    first, last, whole = (scores[s, "sum"] for s in ("response-first-2", "last-3", "response"))
    assert first.value + last.value == pytest.approx(whole.value)
    assert (first.log_likelihood, whole.log_likelihood) == (None, whole.value)
    mean = scores["response", "mean"]
    assert (mean.value * 5, mean.log_likelihood) == (pytest.approx(whole.value), None)
    assert mean.perplexity == pytest.approx(whole.perplexity)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"unmasking": "random"}, "scorer 'duel': unmasking='random' is random, or edits"),
        ({"unmasking": "origin"}, "unmasking='origin' is random"),
        ({"unmasking": "llada2_editing"}, "unmasking='llada2_editing' is random, or edits"),
        ({"unmasking_settings": {"alg_temp": 0.5}}, "unmasking='low-confidence' is random"),
        ({"unmasking": "margins"}, "Did you mean 'margin'"),
        ({"unmasking_settings": {"alg_tmp": 1}}, "alg_tmp"),
        ({"block_length": 2}, "this model's block_length is 4"),
    ],
)
def test_what_cannot_be_replayed_is_refused_before_any_pass(
    settings: dict[str, object], message: str
) -> None:
    toy = ToyPredictor(attention=BlockCausal(4))
    params = ScoringParams(scorer="duel", scorer_settings=settings, logprobs=None)
    with pytest.raises(InputError, match=message):
        LLM(toy).score(["abc"], ["def"], params)
    assert not toy.batches


class Maskless(ToyPredictor):
    """The toy model, which never predicts the mask token."""

    def logits(self, ids: np.ndarray) -> np.ndarray:
        logits = super().logits(ids)
        logits[:, MASK] = -np.inf
        return logits


@pytest.mark.parametrize("tokens_per_step", [1, 2])
@pytest.mark.parametrize("policy", POLICIES)
def test_its_terms_are_what_the_writing_told_at_temperature_0(
    policy: str, tokens_per_step: int
) -> None:
    for attention in (None, BlockCausal(4)):
        llm = LLM(Maskless() if attention is None else Maskless(attention=attention))
        rate = {"tokens_per_step": tokens_per_step, "block_length": 4}
        params = SamplingParams(max_tokens=8, unmasking=policy, length="fixed", **rate)
        [output] = llm.generate([[1, 2, 3, 4]], params)[0].outputs
        writing = output.writing
        assert writing is not None
        scorer = duel(unmasking=policy, tokens_per_step=tokens_per_step)
        assert isinstance(scorer, Duel)
        [text] = llm.planner.texts([1, 2, 3, 4], [output.token_ids], ScoringParams(block_length=4))
        terms = drive(scorer._replay(text), llm.predictor.read)
        assert terms[4:].astype(np.float32).tolist() == writing.logprobs[4:].tolist()
