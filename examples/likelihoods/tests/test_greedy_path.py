"""The scorer greedy-path against a loop that runs the toy model one text at a time."""

import itertools

import numpy as np
import pytest
from dise_likelihoods.greedy_path import GreedyPath

from dise_core import LLM, BlockCausal, Causal, InputError, ScoringParams
from dise_core.testing import ToyPredictor, check_scorer

GREEDY = ScoringParams(scorer="greedy-path", logprobs=None)
MASK, END = 11, 10
"""The toy model's special tokens."""


def path(toy: ToyPredictor, ids: list[int], hidden: list[int], stop: int) -> float:
    """Reveal the hidden positions of a text that is read up to `stop`, the surest first."""
    total, text = 0.0, [MASK if at in hidden else token for at, token in enumerate(ids)]
    while hidden:
        logits = toy.logits(np.array(text[:stop]))
        logprobs = logits - np.logaddexp.reduce(logits, axis=1)[:, None]
        surest = max(hidden, key=lambda at: logprobs[at][ids[at]])
        total += logprobs[surest][ids[surest]]
        text[surest] = ids[surest]
        hidden = [at for at in hidden if at != surest]
    return total


def test_it_conforms() -> None:
    check_scorer(GreedyPath())


@pytest.mark.parametrize("seed", range(3))
def test_it_reveals_the_surest_token_first(seed: int) -> None:
    toy = ToyPredictor(seed=seed)
    ids = np.random.default_rng(seed).integers(0, 10, 9).tolist()
    [answer] = LLM(toy).score([ids[:2]], [ids[2:]], GREEDY)
    score = answer.outputs[0].score
    assert score.value == pytest.approx(path(toy, ids, list(range(2, 9)), 9), abs=1e-5)
    assert (score.num_positions, score.log_likelihood, answer.usage.nfe) == (7, None, 7)


@pytest.mark.parametrize("seed", range(3))
def test_a_block_is_revealed_after_the_finished_ones_before_it(seed: int) -> None:
    toy = ToyPredictor(seed=seed, attention=BlockCausal(4))
    ids = [*np.random.default_rng(seed).integers(0, 10, 11).tolist(), END]
    given = ScoringParams(scorer="greedy-path", selector="last-8", logprobs=None)
    [answer] = LLM(toy).score([ids[:2]], [ids[2:]], given)
    expected = path(toy, ids, [3], 4) + path(toy, ids, [4, 5, 6, 7], 8)
    expected += path(toy, ids, [8, 9, 10], 12)
    assert answer.outputs[0].score.value == pytest.approx(expected, abs=1e-5)
    assert answer.usage.nfe == 4, "one token of every block in a pass"


def test_prompt_tokens_are_never_masked() -> None:
    llm = LLM(ToyPredictor())
    values = {
        selector: llm.score("abc", "def", ScoringParams(scorer="greedy-path", selector=selector))[0]
        .outputs[0]
        .score.value
        for selector in ("response", "full", "prompt-last-1000")
    }
    assert values["response"] == values["full"]
    assert values["prompt-last-1000"] == -np.inf


def test_it_is_no_likelihood() -> None:
    """Over all texts of two tokens its probabilities sum to more than 1."""
    texts = [list(ids) for ids in itertools.product(range(MASK), repeat=2)]
    answers = LLM(ToyPredictor(seed=3)).score([[1]] * len(texts), texts, GREEDY)
    values = [answer.outputs[0].score.value for answer in answers]
    assert np.exp(values).sum() > 1.5


def test_an_auto_regressive_model_is_refused() -> None:
    with pytest.raises(InputError, match="'greedy-path' needs a diffusion language model"):
        LLM(ToyPredictor(attention=Causal())).score(["abc"], ["def"], GREEDY)
