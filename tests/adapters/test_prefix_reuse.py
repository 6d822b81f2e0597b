"""Texts that begin alike compute their beginning once: with the answers of whole passes, within the
bound, and never where attention would make it inexact.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from dise import LLM
from dise_adapters.local.decoder.own import OwnBody
from dise_adapters.local.reading import layout
from dise_core import Bidirectional, BlockCausal, Distribution, MaskPredictor, Read, SamplingParams
from dise_core.arrays import Ids
from dise_core.plans.reading import Guidance
from dise_decide import DecisionParams, PredicateQuestion
from dise_decide.routes import openai_body
from tests import tiny_gguf
from tests.adapters.agreement import assert_alike
from tests.block_checkpoints import BLOCK, KINDS, assert_exact, load, texts_of
from tests.reference_backbone import block_causal
from tests.reference_blocks import reference_of

pytestmark = pytest.mark.usefixtures("short")


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "MIN_SHARED", BLOCK)


@pytest.fixture(params=[*KINDS, "causal"])
def loaded(
    request: pytest.FixtureRequest, folders: dict[str, Path], checkpoint_of: Callable[[str], Path]
) -> Callable[..., MaskPredictor]:
    """Return what loads a model: one in blocks, shifted or not, or an auto-regressive one."""
    if request.param == "causal":
        return lambda **options: LLM(checkpoint_of("llama"), **options).predictor
    return lambda **options: load(request.param, folders[request.param], **options)


def last(ids: Ids, count: int = 3) -> Read:
    return Read(ids, np.arange(len(ids))[-count:], Distribution())


def begun(prompt: Ids, *lengths: int) -> list[Read]:
    return [last(np.concatenate([prompt, ids])) for ids in texts_of(*lengths)]


def kept_by(predictor: MaskPredictor) -> tuple[int, int]:
    """Return how many tokens are kept, and how many rows are free."""
    prefixes = predictor.room.prefixes  # type: ignore[union-attr]
    return prefixes.num_kept, prefixes.num_free


@pytest.mark.parametrize("bound", [64, 4096])
def test_answers_are_those_of_whole_passes(
    loaded: Callable[..., MaskPredictor], bound: int
) -> None:
    """Of texts read together and one after the other, under a bound of two of them too."""
    predictor, plain = loaded(prefix_cache_tokens=bound), loaded(prefix_cache_tokens=0)
    [prompt] = texts_of(22)
    reads = begun(prompt, 4, 5, 5, 9, 10)
    expected = [reading.logprobs for read in reads for reading in plain.read([read])]
    reused = []
    for batch in (reads, reads[::-1], reads[:1], reads):
        readings = predictor.read(batch)
        reused += [reading.num_reused for reading in readings]
        for read, reading in zip(batch, readings, strict=True):
            place = next(i for i, other in enumerate(reads) if other is read)
            np.testing.assert_allclose(reading.logprobs, expected[place], atol=1e-5)
            assert reading.is_exact
        kept, free = kept_by(predictor)
        assert kept + free == bound
    assert reused.count(0) == 1
    assert min(reused[5:]) >= 16


def test_texts_of_different_salts_reuse_nothing_of_each_other(
    loaded: Callable[..., MaskPredictor],
) -> None:
    """Neither later nor read together, where none waits for another's beginning: one text under
    two salts is two rows; with the same answers.
    """
    predictor, [prompt] = loaded(), texts_of(22)
    [read, other] = begun(prompt, 4, 5)
    [salted, again] = [replace(each, cache_salt="a") for each in (read, other)]
    [first, alone] = predictor.read([read, salted])
    assert (first.num_reused, alone.num_reused) == (0, 0)
    np.testing.assert_allclose(first.logprobs, alone.logprobs, atol=1e-5)
    [plain, reusing] = predictor.read([replace(read, cache_salt="b"), again])
    assert (plain.num_reused, reusing.num_reused) == (0, 20)
    together = [replace(each, cache_salt=salt) for salt in "cd" for each in (read, other)]
    assert [reading.num_reused for reading in predictor.read(together)].count(0) == 2


def test_a_pass_that_fails_leaves_nothing_in_use(
    loaded: Callable[..., MaskPredictor], monkeypatch: pytest.MonkeyPatch
) -> None:
    predictor, [prompt] = loaded(prefix_cache_tokens=64), texts_of(22)
    predictor.read(begun(prompt, 4))

    def fail(*_: object) -> None:
        raise ValueError("a pass that fails")

    with monkeypatch.context() as broken:
        broken.setattr(OwnBody, "__call__", fail)
        with pytest.raises(ValueError, match="a pass that fails") as error:
            predictor.read(begun(prompt, 4, 5, 6))
        assert sum(kept_by(predictor)) == 64, "while the error is held"
    del error
    [reading] = predictor.read([last(texts_of(60)[0])])  # takes nearly all rows
    assert reading.num_reused == 20
    assert sum(kept_by(predictor)) == 64


def test_what_is_kept_is_finished_and_not_guided(folders: dict[str, Path]) -> None:
    predictor, [ids] = load("qwen3", folders["qwen3"]), texts_of(24)
    mask_id = predictor.info.special.mask_id
    assert mask_id is not None
    masked = np.where(np.arange(24) < 14, ids, mask_id)
    for read in (
        last(masked),
        Read(ids, ids[:1] * 0 + 23, Distribution(), guidance=Guidance(ids, 1.0)),
    ):
        predictor.read([read])
        assert kept_by(predictor)[0] == 12
    assert [reading.num_reused for reading in predictor.read([last(masked), last(ids)])] == [12, 12]


def test_nothing_is_kept_under_full_attention(folders: dict[str, Path]) -> None:
    predictor = load("qwen3", folders["qwen3"], Bidirectional())
    assert predictor.room.prefixes is None  # type: ignore[union-attr]
    for reading in predictor.read(begun(texts_of(22)[0], 4, 4)) * 2:
        assert (reading.share, reading.num_reused) == (1, 0)


def test_models_share_nothing(folders: dict[str, Path]) -> None:
    """Nor do two attentions of one checkpoint."""
    [ids] = texts_of(24)
    for length in (BLOCK, 2 * BLOCK):
        predictor = load("qwen3", folders["qwen3"], BlockCausal(length))
        [reading] = predictor.read([last(ids)])
        assert reading.num_reused == 0
        logits = reference_of("qwen3", folders["qwen3"]).logits(
            ids.tolist(), block_causal(24, length)
        )
        assert_exact(reading.logprobs, torch.log_softmax(logits[-3:], -1).numpy())


@pytest.mark.parametrize("bound", [100, 8192])
def test_a_chat_and_its_scores_reuse_earlier_turns(bound: int) -> None:
    """With the same answers; what a turn repeats of the last one is told as cached."""
    params = SamplingParams(max_tokens=16, length="fixed", n=2, temperature=1.0, seed=0)
    ways = [LLM("countdown-blocks", prefix_cache_tokens=tokens) for tokens in (0, bound)]
    text = ways[0].predictor.tokenizer.encode("12,3,8,5 -> 22\n").tolist() * 3
    for turn in range(3):
        plain, reusing = (llm.generate([text], params)[0] for llm in ways)
        assert_alike([reusing], [plain], 1e-5)
        assert plain.usage.cached_tokens == 0
        assert (reusing.usage.cached_tokens > 0) == (turn > 0)
        assert reusing.usage.nfe_computed < plain.usage.nfe_computed
        text += plain.outputs[0].token_ids[:8] + tuple(text[:9])
    gc.collect()
    room = ways[1].predictor.room
    assert room is not None
    assert room.num_free == 16384
    assert sum(kept_by(ways[1].predictor)) == bound


def test_questions_about_one_input_compute_it_once(tmp_path: Path) -> None:
    """With an auto-regressive model: all but the input's tokens once, and a few for each question;
    the server tells the rest as cached.
    """
    path = str(tiny_gguf.write(tmp_path / "tiny.gguf"))
    asked = [PredicateQuestion(instructions=f" {letter}?") for letter in "abcdef"]
    text, params = "the input " * 9, DecisionParams(layout="cloze")
    plain, reusing = (
        LLM(path, prefix_cache_tokens=bound).decide(text, asked, params) for bound in (0, 512)
    )
    for one, other in zip(plain.answers, reusing.answers, strict=True):
        assert one.diagnostics.logprobs == pytest.approx(other.diagnostics.logprobs, abs=1e-5)
    usage = reusing.usage
    assert (usage.prompt_tokens, plain.usage.cached_tokens) == (plain.usage.prompt_tokens, 0)
    assert usage.prompt_tokens - usage.cached_tokens < 1.7 * usage.prompt_tokens / len(asked)
    counts = openai_body(reusing)["usage"]
    assert counts["input_tokens_details"]["cached_tokens"] == usage.cached_tokens  # type: ignore[index]
