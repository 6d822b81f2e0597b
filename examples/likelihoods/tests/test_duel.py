"""The scorer duel: its likelihoods are those of a distribution over all texts."""

import itertools

import numpy as np
import pytest
from dise_likelihoods.duel import Duel

from dise_core import (
    LLM,
    BlockCausal,
    InputError,
    SamplingParams,
    ScoringParams,
    drive,
    installed_catalog,
)
from dise_core.testing import ToyPredictor

POLICIES = [
    name
    for name, entry in installed_catalog().unmasking_policies.items()
    if name not in ("random", "origin") and not entry.load().edits
]
END, MASK = 10, 11
"""The toy model's special tokens."""


def likelihoods(
    toy: ToyPredictor, prompt: list[int], responses: list[list[int]], **settings: object
) -> list[float]:
    params = ScoringParams(scorer="duel", scorer_settings=settings, logprobs=None)
    answers = LLM(toy).score([prompt] * len(responses), responses, params)
    return [answer.outputs[0].score.value for answer in answers]


@pytest.mark.parametrize("tokens_per_step", [1, 2])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_likelihoods_of_all_texts_sum_to_1(policy: str, tokens_per_step: int) -> None:
    settings = {"threshold": 0.5} if policy in ("threshold", "sub-blocks") else {}
    responses = [list(ids) for ids in itertools.product(range(MASK), repeat=2)]
    for toy in (ToyPredictor(), ToyPredictor(attention=BlockCausal(2))):
        values = likelihoods(
            toy, [1, 2, 3], responses, unmasking=policy, unmasking_settings=settings,
            tokens_per_step=tokens_per_step,
        )  # fmt: skip
        assert np.exp(values).sum() == pytest.approx(1, abs=1e-5)


def loop(toy: ToyPredictor, prompt: list[int], response: list[int], length: int | None) -> float:
    """Reveal a text's tokens where the model's best candidate is surest, block by block; no
    candidate is the mask, and blocks of `length` see nothing behind them.
    """
    ids, total = prompt + response, 0.0
    text = prompt + [MASK] * len(response)
    while MASK in text:
        first = text.index(MASK)
        stop = len(ids) if length is None else (first // length + 1) * length
        block = range(first, min(stop, len(ids)))
        seen = text if length is None else text[:stop] + [END] * (stop - len(text))
        logits = toy.logits(np.array(seen))[:, :MASK]
        logprobs = logits - np.logaddexp.reduce(logits, axis=1)[:, None]
        at = max((i for i in block if text[i] == MASK), key=lambda i: logprobs[i].max())
        total += logprobs[at][ids[at]]
        text[at] = ids[at]
    return total


@pytest.mark.parametrize("length", [None, 3])
@pytest.mark.parametrize("seed", range(3))
def test_the_likelihood_is_that_of_the_loop_written_down(seed: int, length: int | None) -> None:
    toy = (
        ToyPredictor(seed=seed)
        if length is None
        else ToyPredictor(seed=seed, attention=BlockCausal(length))
    )
    ids = np.random.default_rng(seed).integers(0, 10, 7).tolist()
    [value] = likelihoods(toy, ids[:2], [ids[2:]])
    assert value == pytest.approx(loop(toy, ids[:2], ids[2:], length), abs=1e-5)


def test_the_selector_chooses_among_the_terms_of_the_whole_replay() -> None:
    llm = LLM(ToyPredictor())
    scores = {}
    for selector in ("response", "first-2", "last-3"):
        for aggregate in ("sum", "mean"):
            settings = {"unmasking": "margin", "aggregate": aggregate}
            params = ScoringParams(
                scorer="duel", scorer_settings=settings, selector=selector, logprobs=None
            )
            [answer] = llm.score(["abc"], ["defgh"], params)
            scores[selector, aggregate] = answer.outputs[0].score
            assert answer.usage.nfe == 5
    first, last, whole = (scores[s, "sum"] for s in ("first-2", "last-3", "response"))
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
        settings = {"unmasking": policy, "tokens_per_step": tokens_per_step}
        scorer = installed_catalog().scorer("duel", settings)
        assert isinstance(scorer, Duel)
        [text] = llm.planner.texts([1, 2, 3, 4], [output.token_ids], ScoringParams(block_length=4))
        terms = drive(scorer._replay(text), llm.predictor.read)
        assert terms[4:].astype(np.float32).tolist() == writing.logprobs[4:].tolist()
