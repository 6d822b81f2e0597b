"""What is remembered of a response: which keys and values may be cached from step to step, and what
is known of finished blocks. What a model caches: tests/adapters/test_cache.py.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from dise_core import (
    LLM,
    BlockCausal,
    CompletionOutput,
    InputError,
    Plan,
    Read,
    Reading,
    RequestOutput,
    SamplingParams,
    ScoringParams,
    TokenLogProbs,
    drive,
)
from dise_core.noise import Noise
from dise_core.params.requests import CacheKind
from dise_core.plans.reading import CacheSlot
from dise_core.scoring.memory import remembering
from dise_core.testing import ToyPredictor
from dise_core.testing.toy_model import MASK
from dise_core.writing.denoise import Denoiser
from dise_core.writing.memory import FinishedBlocks, memory_of
from dise_strategies.unmasking.ranked import LowConfidence
from tests.recorded import Recorded

CANVAS = np.array([1, 2, 3, 4, 5, *[MASK] * 8])
"""A tail of 8 masks behind a context of 5 tokens."""


def writer_of(cache: CacheKind) -> Denoiser:
    params = SamplingParams(max_tokens=8, block_length=4, tokens_per_step=2, cache=cache)
    info = ToyPredictor().info
    return Denoiser(info, LowConfidence(), Noise(0), params, memory=memory_of(info, params))


def windows(writer: Denoiser, canvas: np.ndarray, start: int) -> list[tuple[int, int] | None]:
    """Return the window of each read that fills the canvas from `start` on."""
    model = Recorded(ToyPredictor().read)
    drive(writer.denoise(writer.text(canvas, 3), start), model)
    return [read.cache.window for read in model.reads if read.cache]


@pytest.mark.parametrize(
    ("cache", "expected"),
    [
        ("none", []),
        ("prefix", [None, (3, 11), None, (7, 11)]),
        ("dual", [None, (3, 7), None, (7, 11)]),
    ],
)
def test_a_response_runs_whole_at_each_blocks_first_step(
    cache: CacheKind, expected: list[tuple[int, int] | None]
) -> None:
    canvas = np.array([1, 2, 3, *[MASK] * 8])
    assert windows(writer_of(cache), canvas, 3) == expected


def test_a_tails_context_runs_once_for_all_tails_of_one_response() -> None:
    writer = replace(writer_of("prefix"), most=14)
    assert windows(writer, CANVAS, 5) == [None, (5, 13), (5, 13), (9, 13)]
    longer = [(5, 14), (5, 14), (5, 14), (9, 14), (5, 14)]
    assert windows(writer, np.append(CANVAS, MASK), 5) == longer
    assert windows(writer_of("prefix"), CANVAS, 5)[0] is None, "another response"


@pytest.mark.parametrize(
    "other",
    [np.array([1, 2, 3, 4, 9, *CANVAS[5:]]), np.append(CANVAS, MASK)],
    ids=["another context", "a text that has no room"],
)
def test_another_context_and_a_text_without_room_run_whole(other: np.ndarray) -> None:
    writer = writer_of("dual")
    for canvas in (CANVAS, other):
        assert windows(writer, canvas, 5)[:3] == [None, (5, 9), (5, len(canvas))]


def test_a_context_counts_as_cached_only_once_it_was_read() -> None:
    writer = writer_of("prefix")
    plan = writer.denoise(writer.text(CANVAS, 3), 5)
    next(plan)
    plan.close()
    assert windows(writer, CANVAS, 5)[0] is None


def rescored(toy: ToyPredictor, prompt: list[int], answer: RequestOutput) -> CompletionOutput:
    """Return an answer's text as it is scored when it is given, over the whole response."""
    params = ScoringParams(selector="response")
    [scored] = LLM(toy).score([prompt], [answer.outputs[0].token_ids], params)
    return scored.outputs[0]


PROMPTS = [np.random.default_rng(n).integers(0, 10, n).tolist() for n in (1, 3, 4, 9)]


class Caching(ToyPredictor):
    """Checks what every hint promises: before its window stands what the slot's last read held,
    and nothing after that read.
    """

    def __init__(self, length: int) -> None:
        super().__init__(max_length=80, attention=BlockCausal(length))
        self.windows: list[tuple[int, int] | None] = []
        self.asked: list[Read] = []
        self._last: dict[CacheSlot, np.ndarray] = {}
        self._length = length

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        for read in {(read.cache, read.token_ids.tobytes()): read for read in reads}.values():
            if read.cache is None:
                continue
            self.windows.append(read.cache.window)
            if read.cache.window is not None:
                start, stop = read.cache.window
                assert 0 < start < stop == len(read.token_ids) <= read.cache.most
                assert start % self._length == 0
                before = self._last[read.cache.slot][:start]
                assert np.array_equal(before, read.token_ids[:start])
                assert MASK not in before
            self._last[read.cache.slot] = read.token_ids
        for read in reads:
            window = read.cache.window if read.cache else None
            assert window is None or (read.positions >= window[0]).all()
        self.asked.extend(reads)
        return super().read(reads)


@pytest.mark.parametrize("cache", ["exact", "none"])
@pytest.mark.parametrize("length", ["fixed", "until-end"])
def test_dise_of_all_blocks_costs_one_pass_at_the_end(cache: str, length: str) -> None:
    for prompt in PROMPTS:
        toy = Caching(4)
        params = SamplingParams(
            max_tokens=18, tokens_per_step=1, selector="response", cache=cache, length=length
        )  # type: ignore[arg-type]
        [answer] = LLM(toy).generate([prompt], params)
        [output] = answer.outputs
        num_written = len(output.token_ids)
        assert len(toy.batches) == answer.usage.nfe
        if length == "fixed":
            whole = num_written + -(len(prompt) + num_written) % 4
            assert num_written < answer.usage.nfe <= whole + 1
        scored = rescored(toy, prompt, answer)
        assert output.score.value == pytest.approx(scored.score.value, abs=1e-6)
        for token, again in zip(output.tokens, scored.tokens, strict=True):
            assert token.logprob == pytest.approx(again.logprob, abs=1e-6)


@pytest.mark.parametrize("cache", ["exact", "prefix", "dual"])
def test_a_block_is_read_against_those_before_it_by_any_cache(cache: CacheKind) -> None:
    toy = Caching(4)
    params = SamplingParams(max_tokens=10, tokens_per_step=2, length="fixed", cache=cache)
    [answer] = LLM(toy).generate([[1, 2, 3, 4, 5]], params)
    assert toy.windows == [None, (4, 8), (4, 12), (8, 12), (8, 16), (12, 16), (12, 16)]
    assert (answer.cache, answer.is_approximate) == ("exact", False)


def test_algorithm_1_keeps_the_blocks_before_its_tail() -> None:
    toy = Caching(4)
    settings = {"mask_size": 5, "max_iterations": 4, "patience": 4}
    params = SamplingParams(
        max_tokens=18, length="dise-flexible", length_settings=settings, selector="response"
    )
    [answer] = LLM(toy).generate([PROMPTS[2]], params)
    [output] = answer.outputs
    assert toy.windows.count(None) == 1, "the prompt runs once"
    assert output.score.value == pytest.approx(
        rescored(toy, PROMPTS[2], answer).score.value, abs=1e-6
    )


def test_the_last_pass_of_an_editor_tells_the_last_block_too() -> None:
    """A block that ends by itself, in a pass that changes nothing, is known without another."""
    toy = Caching(4)
    params = SamplingParams(
        max_tokens=11, selector="response", unmasking="llada2-editing", tokens_per_step=1,
        unmasking_settings={"threshold": 1.0, "editing_threshold": 1.0}, length="fixed",
    )  # fmt: skip
    [answer] = LLM(toy).generate([[1]], params)
    own = [read for read in toy.asked if isinstance(read.readout, TokenLogProbs)]
    assert [read.positions.tolist() for read in own] == [[1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert toy.asked[-2].token_ids is own[-1].token_ids, "it shares the pass of a step"
    assert toy.asked[-2].canvas is not None
    assert answer.usage.nfe == 3 + 4 + 4 + 3
    assert answer.outputs[0].score.value == pytest.approx(
        rescored(toy, [1], answer).score.value, abs=1e-6
    )


def test_guided_passes_are_whole_and_tell_nothing() -> None:
    toy = Caching(4)
    params = SamplingParams(max_tokens=9, cfg_scale=1.0, selector="response", length="fixed")
    [answer] = LLM(toy).generate([[1, 2, 3]], params)
    assert [read.guidance is None for read in toy.asked].count(True) == 2, (
        "the scorer's, its report's"
    )
    assert all(read.cache is None for read in toy.asked)
    assert answer.outputs[0].score.value == rescored(toy, [1, 2, 3], answer).score.value


def test_top_logprobs_share_the_scorers_pass() -> None:
    toy = Caching(4)
    params = SamplingParams(max_tokens=10, logprobs=2, length="fixed", tokens_per_step=2)
    [answer] = LLM(toy).generate([[1, 2]], params)
    assert answer.usage.nfe == 1 + 2 + 2 + 1
    assert len(answer.outputs[0].tokens[0].top_logprobs) == 2


def known(finished: FinishedBlocks, ids: list[int]) -> list[bool]:
    """Return for each token whether its log-probability is known."""
    return [not np.isnan(value) for value in finished.known(np.array(ids))]


def test_what_is_known_of_a_text_ends_with_the_block_in_which_it_differs() -> None:
    toy = Caching(4)
    finished = FinishedBlocks(toy.info)
    text = np.array([1, 2, 3, 4, 5, 6, 7, 8, MASK])
    own = Read(text, np.arange(2, 8), TokenLogProbs(text[2:8]))
    [reading] = toy.read([own])
    finished.note(own, reading)
    assert known(finished, [1, 2, 3, 4, 5, 6, 7, 8, 9]) == [False, False, *[True] * 6, False]
    assert known(finished, [1, 2, 3, 4, 5, 6, 7, 9]) == [False, False, True, True, *[False] * 4]
    assert known(finished, [1, 2, 3, 4, 5, 6]) == [False, False, True, True, False, False]
    assert not any(known(finished, [2, 2, 3, 4, 5, 6, 7, 8]))
    np.testing.assert_array_equal(finished.known(text)[2:8], reading.logprobs)


def test_a_last_block_that_was_read_alone_is_not_known() -> None:
    toy = Caching(4)
    finished = FinishedBlocks(toy.info)
    text = np.arange(6)
    own = Read(text, text, TokenLogProbs(text), is_complete=True)
    [alone], [completed] = toy.read([own]), toy.read([replace(own, is_complete=False)])
    assert abs(alone.logprobs - completed.logprobs).max() > 1e-3
    finished.note(own, alone)
    assert known(finished, text.tolist()) == [True] * 4 + [False] * 2


def test_what_is_not_the_texts_own_or_not_exact_is_not_kept() -> None:
    toy = Caching(4)
    text = np.array([1, 2, 3, 4])
    for read, is_exact in (
        (Read(text, np.arange(4), TokenLogProbs(text)), False),
        (Read(text, np.arange(4), TokenLogProbs(text + 1)), True),
        (Read(text, np.arange(4), TokenLogProbs(text), predictor="judge"), True),
        (Read(text, np.arange(4), TokenLogProbs(text), shadow=True), True),
        (Read(text, np.arange(4), TokenLogProbs(text), context_ids=text), True),
    ):
        finished = FinishedBlocks(toy.info)
        finished.note(read, Reading(text, np.zeros(4, np.float32), is_exact=is_exact))
        assert not any(known(finished, text.tolist()))


@pytest.mark.parametrize("scorer", ["shadow", "interleaved"])
def test_other_scorers_ask_although_the_texts_own_tokens_are_known(scorer: str) -> None:
    llm = LLM(ToyPredictor(attention=BlockCausal(4)))
    params = SamplingParams(max_tokens=10, length="fixed", scorer=scorer)
    [dise], [other] = (
        llm.generate([[1, 2]], each)[0].outputs
        for each in (params.model_copy(update={"scorer": "dise"}), params)
    )
    assert dise.token_ids == other.token_ids
    assert abs(dise.score.value - other.score.value) > 1e-3
    [again] = llm.score([[1, 2]], [other.token_ids], ScoringParams.of(params))[0].outputs
    assert other.score.value == pytest.approx(again.score.value, abs=1e-6)


def test_an_error_of_a_pass_reaches_the_plan_that_asked() -> None:
    def plan() -> Plan[str]:
        text = np.array([1, 2])
        try:
            yield [Read(text, text[:1], TokenLogProbs(text[text[:1]]))]
        except InputError as error:
            return str(error)
        return "no error"

    running = remembering(plan(), FinishedBlocks(Caching(4).info))
    next(running)
    with pytest.raises(StopIteration) as stopped:
        running.throw(InputError("no"))
    assert stopped.value.value == "no"
