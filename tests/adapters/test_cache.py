"""Kept keys and values: what Fast-dLLM's loops write, whatever runs beside it, within a bound, and
gone with its request.
"""

import gc
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock, patch

import numpy as np
import pytest
import torch

from dise_adapters.local.decoder.kv_cache import GROWTH, KVCache
from dise_adapters.local.decoder.own import OwnBody
from dise_core import LLM, Candidates, Distribution, Read, SamplingParams
from dise_core.errors import ModelError
from dise_core.plans.reading import CacheHint, CacheSlot, Guidance
from tests.reference_llada import ReferenceLLaDA, checkpoint, naive_decode, naive_flexible

PROMPTS = [np.random.default_rng(n).integers(0, 48, n).tolist() for n in (1, 5, 12, 30)]


@pytest.mark.parametrize("cache", ["none", "prefix", "dual"])
@pytest.mark.parametrize(
    "schedule", [*({"tokens_per_step": count} for count in (1, 2, 3)), {"steps": 6}, {"steps": 9}]
)
@pytest.mark.parametrize("changes", [{}, {"n_heads": 4, "n_kv_heads": 2, "n_layers": 3}])
def test_greedy_decoding_writes_what_the_published_loops_write(
    tmp_path: Path, cache: str, schedule: dict[str, int], changes: dict[str, object]
) -> None:
    folder = checkpoint(tmp_path, **changes)  # type: ignore[arg-type]
    reference = ReferenceLLaDA(folder, torch.float64)
    params = SamplingParams(max_tokens=20, block_length=8, cache=cache, **schedule)  # type: ignore[arg-type]
    llm = LLM(str(folder))
    for prompt, answer in zip(PROMPTS, llm.generate(PROMPTS, params), strict=True):
        expected = naive_decode(reference, prompt, 20, 8, cache=cache, **schedule)  # type: ignore[arg-type]
        assert [*prompt, *answer.outputs[0].token_ids] == expected


@pytest.mark.parametrize("cache", ["none", "prefix", "dual"])
@pytest.mark.parametrize(("block_length", "mask_size"), [(8, 6), (8, 20), (32, 3)])
def test_algorithm_1_keeps_what_stands_before_its_tail(
    llada: Path, cache: str, block_length: int, mask_size: int
) -> None:
    reference = ReferenceLLaDA(llada, torch.float64)
    params = SamplingParams(
        max_tokens=16,
        block_length=block_length,
        cache=cache,  # type: ignore[arg-type]
        length="dise-flexible",
        length_settings={"mask_size": mask_size, "patience": 10},
    )
    for prompt, answer in zip(PROMPTS, LLM(str(llada)).generate(PROMPTS, params), strict=True):
        expected = naive_flexible(reference, prompt, 16, block_length, 2, cache, mask_size)
        [output] = answer.outputs
        np.testing.assert_allclose(
            [step.score for step in output.trace], [value for _, value in expected], atol=1e-4
        )
        assert [*prompt, *output.token_ids] == max(expected, key=lambda text: text[1])[0]


def test_an_extension_costs_its_scoring_pass_and_its_tail(llada: Path) -> None:
    params = SamplingParams(
        max_tokens=30,
        cache="dual",
        length="dise-flexible",
        length_settings={"mask_size": 5, "max_iterations": 3},
    )
    [prompt] = [p for p in PROMPTS if len(p) == 30]
    [answer] = LLM(str(llada)).generate([prompt], params)
    first, second, third = answer.outputs[0].trace
    num_tokens = 30 + first.num_tokens
    written = 1 + (first.nfe - 2) * 30 / 60
    extended = 1 + 2 * 6 / (num_tokens + 1)
    extended_again = 4 * 7 / (num_tokens + 2)
    assert (second.nfe, third.nfe) == (3 + 1, 4 + 1)
    assert answer.usage.nfe_computed == pytest.approx(written + extended + extended_again + 3)
    assert answer.is_approximate


def read_twice(
    llm: LLM, ids: np.ndarray, changed: np.ndarray, window: tuple[int, int]
) -> np.ndarray:
    """Read one text whole, then another that differs in a window, against what was kept; return
    log-probabilities there.
    """
    slot, positions = CacheSlot(), np.arange(*window)
    llm.predictor.read([Read(ids, positions, Candidates(), cache=CacheHint(slot))])
    [reading] = llm.predictor.read(
        [Read(changed, positions, Distribution(), cache=CacheHint(slot, window))]
    )
    return reading.logprobs


@pytest.mark.parametrize("kind", ["llada", "dream"])
def test_a_window_of_the_whole_text_and_one_that_changed_nothing_are_exact(
    checkpoint_of: Callable[[str], Path], kind: str
) -> None:
    llm = LLM(checkpoint_of(kind))
    ids = np.random.default_rng(0).integers(0, 45, 20)
    changed = ids.copy()
    changed[5:9] = 7
    for text, window in ((changed, (0, 20)), (ids, (6, 12)), (ids, (1, 3))):
        [exact] = llm.predictor.read([Read(text, np.arange(*window), Distribution())])
        np.testing.assert_allclose(read_twice(llm, ids, text, window), exact.logprobs, atol=1e-4)
    [exact] = llm.predictor.read([Read(changed, np.arange(5, 9), Distribution())])
    assert np.abs(read_twice(llm, ids, changed, (5, 9)) - exact.logprobs).max() > 1e-3


@pytest.mark.parametrize("room", [66, 130, 10_000])
def test_a_request_alone_and_among_others_that_find_no_room_writes_the_same(
    llada: Path, room: int
) -> None:
    folder = str(llada)
    crowd, ample = LLM(folder, max_cache_tokens=room), LLM(folder, max_cache_tokens=10_000)
    growing = {
        "length": "dise-flexible",
        "length_settings": {"max_iterations": 22, "patience": 22, "mask_size": 8},
    }
    plain = SamplingParams(max_tokens=20, block_length=8, tokens_per_step=2, cache="dual", seed=0)
    params = [
        plain.model_copy(update=changes)
        for changes in (
            {},
            {"max_tokens": 24, "block_length": 5, "cache": "prefix", "temperature": 1.0},
            {"max_tokens": 16, "block_length": 16, "cache": "none"},
            {"max_tokens": 10, "tokens_per_step": 4, "temperature": 1.0, **growing},
        )
    ]
    together = crowd.generate(PROMPTS * 2, params * 2)
    for prompt, own, answer in zip(PROMPTS * 2, params * 2, together, strict=True):
        [alone] = ample.generate([prompt], own)
        assert alone.outputs[0].token_ids == answer.outputs[0].token_ids
        assert answer.is_approximate is (own.cache != "none")


def test_what_could_never_be_kept_runs_whole_and_exact(llada: Path) -> None:
    folder = str(llada)
    params = SamplingParams(max_tokens=20, block_length=8, cache="dual")
    small = LLM(folder, max_cache_tokens=20)
    exact = small.generate(PROMPTS, params.model_copy(update={"cache": "none"}))
    for one, other in zip(small.generate(PROMPTS, params), exact, strict=True):
        assert one.outputs[0].token_ids == other.outputs[0].token_ids


def test_a_text_gets_all_the_room_that_it_may_need_and_gives_it_back_once() -> None:
    kept = KVCache((1, 1, 2), 100, torch.device("cpu"), torch.float32)
    slot, other = CacheSlot(), CacheSlot()
    assert kept.missing(CacheHint(slot), 40) == 40 + GROWTH
    assert kept.missing(CacheHint(slot, most=44), 40) == 44
    assert kept.missing(CacheHint(slot, most=2**20), 40) == 100
    assert kept.missing(CacheHint(other), 101) == 0
    assert kept.take(CacheHint(slot, most=44), 40)
    assert kept.take(CacheHint(slot), 30)
    assert kept.take(CacheHint(slot), 44)
    assert kept.num_free == 56
    assert kept.missing(CacheHint(slot), 47) == 0
    assert not kept.take(CacheHint(slot), 47)
    assert not kept.take(CacheHint(other), 56)
    assert kept.take(CacheHint(other), 56 - GROWTH)
    assert kept.num_free == 0
    assert kept.take(CacheHint(slot), 44)
    assert len({*kept.rows(slot).tolist(), *kept.rows(other).tolist()}) == 100 - GROWTH
    del slot, other
    gc.collect()
    assert kept.num_free == 100
    assert kept.take(CacheHint(CacheSlot()), 100)


def test_a_guided_read_keeps_nothing_and_is_exact(llada: Path) -> None:
    llm, slot = LLM(str(llada)), CacheSlot()
    ids, positions, guidance = np.arange(12), np.arange(4, 8), Guidance(np.full(12, 5), 2.0)
    [exact] = llm.predictor.read([Read(ids, positions, Distribution(), guidance=guidance)])
    for hint in (CacheHint(slot), CacheHint(slot, (4, 8))):
        llm.predictor.read([Read(ids, positions, Distribution(), cache=CacheHint(slot))])
        [reading] = llm.predictor.read(
            [Read(ids, positions, Distribution(), guidance=guidance, cache=hint)]
        )
        np.testing.assert_allclose(reading.logprobs, exact.logprobs, atol=1e-5)
        assert reading.share == 1


def test_memory_that_cannot_be_had_says_what_to_lower() -> None:
    kept = KVCache((1000, 1000, 1000), 10**6, torch.device("cpu"), torch.float32)
    with pytest.raises(ModelError, match=r"1000000 tokens .* lower max_cache_tokens"):
        kept.memory()


def test_a_window_runs_only_against_what_is_kept() -> None:
    kept, slot = KVCache((1, 1, 2), 10, torch.device("cpu"), torch.float32), CacheSlot()
    assert not kept.holds(CacheHint(slot, (2, 4)), 6)
    assert kept.take(CacheHint(slot), 6)
    assert not kept.holds(CacheHint(slot, (2, 4)), 6), "the pass may have failed"
    kept.computed(slot, 0, 6)
    assert kept.holds(CacheHint(slot, (2, 4)), 6)
    assert not kept.holds(CacheHint(slot, (2, 4)), 7)
    assert kept.holds(CacheHint(slot, (2, 7)), 7)
    assert kept.holds(CacheHint(slot, (2, 5)), 5)
    assert not kept.holds(CacheHint(slot, (6, 8)), 8)
    assert not kept.holds(CacheHint(slot, (2, 12)), 12)
    assert not kept.take(CacheHint(slot), 11)
    assert not kept.holds(CacheHint(slot, (2, 4)), 6), "what could not be kept leaves nothing"


def test_a_pass_that_failed_has_kept_nothing() -> None:
    llm = LLM("countdown", max_cache_tokens=512)
    ids, positions, hint = (
        np.arange(3, 43) % 20,
        np.arange(20, 28),
        CacheHint(CacheSlot(), (20, 28)),
    )
    [exact] = llm.predictor.read([Read(ids, positions, Distribution())])
    fails = patch.object(OwnBody, "__call__", Mock(side_effect=RuntimeError("failed")))
    with fails, pytest.raises(RuntimeError, match="failed"):
        llm.predictor.read([Read(ids, positions, Distribution(), cache=hint)])
    [again] = llm.predictor.read([Read(ids, positions, Distribution(), cache=hint)])
    np.testing.assert_allclose(again.logprobs, exact.logprobs, atol=1e-5)


def test_an_answer_written_with_a_cache_says_so(llada: Path) -> None:
    llm = LLM(str(llada))
    plain, cached = (
        llm.generate([1, 2], SamplingParams(max_tokens=8, cache=cache))[0].to_dict()  # type: ignore[arg-type]
        for cache in ("none", "prefix")
    )
    assert (cached["cache"], cached["is_approximate"]) == ("prefix", True)
    assert cached["usage"]["nfe_computed"] < cached["usage"]["nfe"]
    assert not {"cache", "is_approximate"} & plain.keys()
    assert "nfe_computed" not in plain["usage"]
