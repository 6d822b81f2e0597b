"""Noise levels beside the text, and models whose noise is tokens drawn uniformly."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dise_core import (
    LLM,
    BlockCausal,
    Candidates,
    CanvasUpdate,
    Causal,
    Distribution,
    Guidance,
    Ids,
    InputError,
    ModelInfo,
    Noise,
    Read,
    Reading,
    RequestOutput,
    SamplingParams,
    ScoringParams,
    SpecialTokens,
    completed,
    noise_levels,
)
from dise_core.errors import PlanError
from dise_core.testing import ToyPredictor
from dise_core.testing.toy_model import END, MASK, SPECIAL, VOCAB_SIZE

ENDED = SpecialTokens(None, frozenset({END}), END)
UNIFORM = ModelInfo("mine", VOCAB_SIZE, 40, ENDED, noise="uniform", is_time_conditioned=True)
PROMPT = [1, 2, 3]
ONE: dict[str, Any] = {"tokens_per_step": 1}


class Uniform(ToyPredictor):
    """A toy of uniform noise that keeps the Reads that it gets."""

    abilities = frozenset()

    def __init__(self) -> None:
        super().__init__()
        self.info, self.reads = UNIFORM, list[Read]()

    def read(self, reads: Any) -> list[Reading]:
        self.reads += reads
        return super().read(reads)


class Timed(Uniform):
    """A toy of masks that is told the noise level."""

    def __init__(self) -> None:
        super().__init__()
        self.info = ModelInfo("timed", VOCAB_SIZE, 40, SPECIAL, is_time_conditioned=True)


def tokens_of(noise: Noise, length: int) -> Ids:
    """Return the tokens that are drawn for hidden positions, one by one."""
    uniforms = [noise.uniforms(np.array([at]), purpose=2)[0] for at in range(length)]
    return np.array([int(u * VOCAB_SIZE) for u in uniforms])


def written(length: int, seed: int) -> Ids:
    """Return what greedy denoising writes, one token a step, by a loop of its own."""
    toy, ids = ToyPredictor(), np.array(PROMPT + [-1] * length)
    noise = Noise.for_request(seed, np.array(PROMPT), 0)
    while hidden := np.flatnonzero(ids == -1).tolist():
        drawn = tokens_of(noise.at_step(len(hidden)), len(ids))
        rows = toy.logits(np.where(ids == -1, drawn, ids))[hidden]
        shares = np.exp(rows) / np.exp(rows).sum(axis=1, keepdims=True)
        best = int(shares.max(axis=1).argmax())
        ids[hidden[best]] = shares[best].argmax()
    return ids[len(PROMPT) :]


def test_a_model_of_uniform_noise_writes_what_a_naive_loop_writes() -> None:
    texts = []
    for seed in range(4):
        params = SamplingParams(max_tokens=8, block_length=8, **ONE, seed=seed)
        [answer] = LLM(Uniform()).generate([PROMPT], params)
        expected = written(8, seed)
        assert [*answer.outputs[0].token_ids] == expected.tolist()
        texts.append(tuple(expected))
    assert len(set(texts)) > 1


def test_each_step_draws_the_hidden_tokens_anew_and_tells_their_share() -> None:
    toy = Uniform()
    LLM(toy).generate([PROMPT], SamplingParams(max_tokens=4, **ONE, seed=1, scorer="written"))
    noise, ids = Noise.for_request(1, np.array(PROMPT), 0), np.array(PROMPT + [VOCAB_SIZE] * 4)
    assert [read.noise for read in toy.reads] == [1.0, 0.75, 0.5, 0.25]
    for count, read in zip((4, 3, 2, 1), toy.reads, strict=True):
        hidden = read.positions
        assert len(hidden) == count
        assert isinstance(read.readout, Candidates)
        assert read.readout.forbidden == ()
        drawn = tokens_of(noise.at_step(count), 7)
        assert (read.token_ids[hidden] == drawn[hidden]).all()
        assert (read.token_ids[: len(PROMPT)] == ids[: len(PROMPT)]).all()


def test_a_stream_shows_what_is_hidden_as_hidden() -> None:
    shown = [*LLM(Uniform()).stream([1, 2], SamplingParams(max_tokens=3, seed=0, **ONE))]
    updates = [update for update in shown if isinstance(update, CanvasUpdate)]
    [answer] = [update for update in shown if isinstance(update, RequestOutput)]
    tokens = [token for update in updates for token in update.committed]
    assert (updates[0].num_tokens, updates[0].committed, len(tokens)) == (3, (), 2)
    assert all(answer.outputs[0].token_ids[token.position] == token.id for token in tokens)


def test_drawn_tokens_are_uniform_and_those_of_a_guided_text_the_same() -> None:
    """The chi-square of 12,000 draws passes 40 with probability 4e-5."""
    ids = np.full(12000, VOCAB_SIZE)
    guidance = Guidance(ids, 1.0)
    read = completed(Read(ids, ids[:0], Distribution(), guidance=guidance), UNIFORM)
    counts = np.bincount(read.token_ids, minlength=VOCAB_SIZE)
    assert len(counts) == VOCAB_SIZE
    assert ((counts - 1000) ** 2 / 1000).sum() < 40
    assert read.guidance is not None
    assert (read.guidance.token_ids == read.token_ids).all()
    assert (read.noise, read.context_ids) == (1.0, None)
    again = completed(read, UNIFORM)
    assert (again.token_ids == read.token_ids).all()
    assert again.noise == 1.0


def test_a_masked_text_of_a_scorer_has_drawn_tokens_and_their_share() -> None:
    """What a drawn token adds to its own logit, where 2 of 4 are hidden, is taken off again."""
    response = [4, 5, 6, 7]
    toy, total = ToyPredictor(), 0.0
    drawn = tokens_of(Noise(0), 7)
    for rest in (0, 1):
        ids = np.array(PROMPT + response)
        places = np.arange(3 + rest, 7, 2)
        ids[places] = drawn[places]
        for row, place in zip(toy.logits(ids)[places], places, strict=True):
            row[drawn[place]] -= np.log(1 + VOCAB_SIZE * 3 / 2)
            total += row[response[place - 3]] - np.log(np.exp(row).sum())
    params = ScoringParams(scorer="interleaved", selector="response", logprobs=None)
    uniform = Uniform()
    [answer] = LLM(uniform).score([PROMPT], [response], params, finished=False)
    assert answer.outputs[0].score.value == pytest.approx(total / 4, abs=1e-6)
    assert {read.noise for read in uniform.reads if len(read.positions) == 2} == {0.5}


def test_a_scorer_about_masks_refuses_uniform_noise_by_name() -> None:
    with pytest.raises(InputError, match="'mc' is about masks, and 'mine' has"):
        LLM(Uniform()).score([PROMPT], [[4, 5]], ScoringParams(scorer="mc"))


def test_a_scorer_about_uniform_noise_refuses_masks_by_name() -> None:
    params = ScoringParams(scorer="loo")
    for score in (LLM(Timed()).score, LLM(Timed()).rank):
        with pytest.raises(InputError, match="'loo' is about uniform noise, and 'timed' was tra"):
            score([PROMPT], [[4, 5]], params)
    causal = Uniform()
    causal.info = ModelInfo("judge", VOCAB_SIZE, 40, ENDED, Causal())
    with pytest.raises(InputError, match="'loo' needs a diffusion language model, and 'judge'"):
        LLM(causal).score([PROMPT], [[4, 5]], params)


def test_leave_one_out_takes_a_tokens_own_pull_off_its_logit() -> None:
    response = [4, 5, 6, 7]
    rows, ids = ToyPredictor().logits(np.array(PROMPT + response))[3:], response
    for kept, odds in ((None, 4.0), (0.5, 1.0), (0.999, 999.0)):
        settings = {} if kept is None else {"kept": kept}
        params = ScoringParams(scorer="loo", scorer_settings=settings, selector="response")
        [answer] = LLM(Uniform()).score([PROMPT], [response], params, finished=False)
        total = 0.0
        for row, own in zip(rows.tolist(), ids, strict=True):
            row[own] -= math.log1p(VOCAB_SIZE * odds)
            total += row[own] - math.log(sum(map(math.exp, row)))
        assert answer.outputs[0].score.value == pytest.approx(total / 4, abs=1e-6)
        assert answer.usage.nfe == 1


def test_what_needs_a_mask_is_refused_under_uniform_noise() -> None:
    llm = LLM(Uniform())
    with pytest.raises(InputError, match="scorer 'shadow' is about masks, and 'mine' has"):
        llm.score([PROMPT], [[4, 5]], ScoringParams(scorer="shadow"))
    for cache in ("prefix", "dual"):
        with pytest.raises(InputError, match=f"cache='{cache}': 'mine' has uniform noise"):
            llm.generate([PROMPT], SamplingParams(max_tokens=4, cache=cache))
    for special, attention in ((SPECIAL, UNIFORM.attention), (ENDED, BlockCausal(4))):
        with pytest.raises(InputError, match="can have neither a mask token nor"):
            ModelInfo("mine", VOCAB_SIZE, 40, special, attention, noise="uniform")
    assert replace(UNIFORM, max_length=9).special.mask_id == VOCAB_SIZE
    assert UNIFORM.mask_token_id is None


@pytest.mark.parametrize(
    "more",
    [
        {"constraint": "regex", "constraint_settings": {"regex": "[a-c]{2,5}"}},
        {"cfg_scale": 1.0},
        {"length": "rho-eos"},
        {"length": "cal"},
        {"reviser": "remask"},
        {"temperature": 1.0, "n": 3},
        {"scorer": "interleaved"},
    ],
)
def test_what_writes_with_masks_writes_with_uniform_noise(more: dict[str, Any]) -> None:
    [answer] = LLM(Uniform()).generate([PROMPT], SamplingParams(max_tokens=6, seed=3, **more))
    assert len(answer.outputs) == more.get("n", 1)
    for output in answer.outputs:
        assert output.score.value < 0
        assert all(token < VOCAB_SIZE for token in output.token_ids)
        if "constraint" in more:
            assert set(output.text) <= set("abc")
            assert 2 <= len(output.text) <= 5


def test_a_time_conditioned_model_is_told_the_responses_share_of_masks() -> None:
    toy = Timed()
    llm = LLM(toy)
    llm.generate([PROMPT], SamplingParams(max_tokens=4, block_length=2, **ONE, scorer="written"))
    assert [read.noise for read in toy.reads] == [1.0, 0.75, 0.5, 0.25]
    toy.reads.clear()
    params = ScoringParams(scorer="mc", scorer_settings={"num_samples": 8}, logprobs=None)
    llm.score([PROMPT], [[4, 5, 6, 7]], params, finished=False)
    shares = [(read.token_ids[3:] == MASK).mean() for read in toy.reads]
    assert [read.noise for read in toy.reads] == shares
    toy.reads.clear()
    params = params.model_copy(update={"selector": "full"})
    llm.score([PROMPT], [[4, 5, 6, 7]], params, finished=False)
    for read in toy.reads:
        is_masked = read.token_ids == MASK
        part = is_masked if is_masked[:3].any() else is_masked[3:]
        assert read.noise == part.mean()
    toy.reads.clear()
    remask = {"read": "interleaved", "threshold": 0}
    llm.generate([PROMPT], SamplingParams(max_tokens=4, reviser="remask", reviser_settings=remask))
    halves = {read.noise for read in toy.reads if len(read.positions) == 2}
    assert halves == {0.5}


def test_a_read_without_a_level_has_that_of_its_masks_block_by_block() -> None:
    ids = np.array([1, MASK, 2, MASK, MASK, 3, 4])
    read = Read(ids, np.array([1]), Candidates(forbidden=(MASK,)))
    info = Timed().info
    assert noise_levels(read, info).tolist() == [3 / 7] * 7
    blocks = replace(info, attention=BlockCausal(4))
    assert noise_levels(read, blocks).tolist() == [0.5] * 4 + [1 / 3] * 3
    assert noise_levels(replace(read, noise=0.25), blocks).tolist() == [0.25] * 7
    with pytest.raises(PlanError, match=r"a share in 0\.\.1, not 1\.5"):
        replace(read, noise=1.5)
