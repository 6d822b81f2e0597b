"""Reads of two streams and of shadows, beside an independent model that runs [x_t ; x_0] whole and
one shadow at a time.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

from dise_core import LLM, BlockCausal, Distribution, Read, ScoringParams
from dise_core.arrays import Ids
from dise_core.models.attention import BIDIRECTIONAL, Attention
from dise_core.plans.reading import Guidance
from dise_core.testing import check_mask_predictor
from tests import reference_a2d
from tests.block_checkpoints import BLOCK, END, KINDS, assert_exact, load, texts_of
from tests.reference_a2d import ReferenceQwen3
from tests.reference_backbone import Reference
from tests.reference_blocks import reference_of, two_streams, with_shadow

MASK = reference_a2d.MASK


def ended(ids: Ids, length: int) -> list[int]:
    return ids.tolist() + [END] * (-len(ids) % length)


def logits_after(
    model: Reference, ids: Ids, context: Ids, positions: Ids, length: int
) -> torch.Tensor:
    """Return logits [M, V] from one pass over [x_t ; x_0]. For Qwen2 row i - 1 answers for i: that
    of a block's first token stands in the finished block before it.
    """
    noisy, clean = ended(ids, length), ended(context, length)
    num_tokens = len(noisy)
    rows = model.rows(noisy + clean, two_streams(num_tokens, length), [*range(num_tokens)] * 2)
    if not model.shape.is_shifted:
        return rows[positions]
    return rows[[_shifted(int(p), length, num_tokens) for p in positions]]


def _shifted(position: int, length: int, num_tokens: int) -> int:
    if position == 0:
        return 0
    return position - 1 + (num_tokens if position % length == 0 else 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("length", "implementation"), [(1, "sdpa"), (3, "sdpa"), (4, "sdpa"), (4, "eager")]
)
def test_two_streams_are_those_of_the_training(
    folders: dict[str, Path], kind: str, length: int, implementation: str
) -> None:
    attention = BlockCausal(length)
    predictor = load(kind, folders[kind], attention, attn_implementation=implementation)
    model, random, reads = reference_of(kind, folders[kind]), np.random.default_rng(2), []
    for context in texts_of(1, 7, 12, 12, 18):
        ids = np.where(random.random(len(context)) < 0.5, MASK, context)
        some = np.flatnonzero(random.random(len(ids)) < 0.6)
        for positions in (np.arange(len(ids)), some, some[-1:]):
            reads.append(Read(ids, positions, Distribution(), context_ids=context))
    reads.append(Read(context, positions, Distribution()))
    *readings, plain = predictor.read(reads)
    for read, reading in zip(reads, readings, strict=False):
        assert read.context_ids is not None
        of = (read.token_ids, read.context_ids, read.positions, length)
        assert_exact(reading.logprobs, torch.log_softmax(logits_after(model, *of), -1).numpy())
    assert_exact(plain.logprobs, predictor.read(reads[-1:])[0].logprobs)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_in_blocks_passes_the_kit(folders: dict[str, Path], kind: str) -> None:
    check_mask_predictor(load(kind, folders[kind], BlockCausal(BLOCK)))


def test_two_streams_are_guided_by_two(folders: dict[str, Path]) -> None:
    predictor = load("qwen3", folders["qwen3"], BlockCausal(BLOCK))
    model, [context, bare], positions = (
        ReferenceQwen3(folders["qwen3"]),
        texts_of(10, 10),
        np.arange(9),
    )
    ids, unconditional = context.copy(), bare.copy()
    ids[[2, 5, 6]] = unconditional[[2, 5, 6]] = MASK
    guidance = Guidance(unconditional, 1.5, bare)
    read = Read(ids, positions, Distribution(), guidance=guidance, context_ids=context)
    [reading] = predictor.read([read])
    c = logits_after(model, ids, context, positions, BLOCK)
    u = logits_after(model, unconditional, bare, positions, BLOCK)
    assert_exact(reading.logprobs, torch.log_softmax(u + 2.5 * (c - u), -1).numpy())


def test_full_attention_ignores_the_context(folders: dict[str, Path]) -> None:
    predictor = load("qwen3", folders["qwen3"], BIDIRECTIONAL)
    [ids, context], positions = texts_of(9, 9), np.arange(9)
    [plain] = predictor.read([Read(ids, positions, Distribution())])
    [same] = predictor.read([Read(ids, positions, Distribution(), context_ids=context)])
    np.testing.assert_array_equal(same.logprobs, plain.logprobs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("attention", [BIDIRECTIONAL, BlockCausal(1), BlockCausal(4)], ids=str)
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_shadows_are_those_of_one_at_a_time(
    folders: dict[str, Path], kind: str, attention: Attention, implementation: str
) -> None:
    predictor = load(kind, folders[kind], attention, attn_implementation=implementation)
    assert "shadow" in predictor.abilities
    texts, reads = texts_of(1, 5, 9, 9, 13), []
    for ids in texts:
        everywhere = np.arange(len(ids))
        reads += [
            Read(ids, everywhere, Distribution(), shadow=True),
            Read(ids, everywhere[::-3].copy(), Distribution(), shadow=True),
            Read(ids, everywhere, Distribution()),
        ]
    for read, reading in zip(reads, predictor.read(reads), strict=True):
        if not read.shadow:
            [plain] = predictor.read([read])
            assert_exact(reading.logprobs, plain.logprobs)
            continue
        expected = [shadow_of(kind, folders, attention, read.token_ids, p) for p in read.positions]
        assert_exact(reading.logprobs, np.array(expected))


def shadow_of(
    kind: str, folders: dict[str, Path], attention: Attention, ids: Ids, position: int
) -> np.ndarray:
    length = attention.length if isinstance(attention, BlockCausal) else len(ids)
    text = ended(ids, length)
    blocks = torch.arange(len(text)) // length
    sees = blocks[None] <= blocks[:, None]
    model = reference_of(kind, folders[kind])
    *run, row = with_shadow(sees, text, int(position), MASK, kind == "qwen2")
    return torch.log_softmax(model.rows(*run)[row], -1).numpy()  # type: ignore[arg-type]


def test_scorers_read_blocks_after_finished_ones(folders: dict[str, Path]) -> None:
    """The interleaved scorer and shadows, through the engine, on a response across four blocks."""
    llm = LLM(load("qwen3", folders["qwen3"], BlockCausal(BLOCK)))
    model, [ids] = ReferenceQwen3(folders["qwen3"]), texts_of(17)
    expected = []
    for remainder in (0, 1):
        masked = ids.copy()
        masked[6 + remainder :: 2] = MASK
        at = np.arange(6 + remainder, 17, 2)
        logits = logits_after(model, masked, ids, at, BLOCK)
        expected.append(torch.log_softmax(logits, -1)[range(len(at)), ids[at]].numpy())
    params = ScoringParams(scorer="interleaved", selector="response")
    [answer] = llm.score([ids[:6].tolist()], [ids[6:].tolist()], params)
    assert answer.outputs[0].score.value == pytest.approx(np.concatenate(expected).mean(), abs=1e-5)
    params = ScoringParams(scorer="shadow", selector="response")
    [answer] = llm.score([ids[:6].tolist()], [ids[6:].tolist()], params)
    shadows = [
        shadow_of("qwen3", folders, BlockCausal(BLOCK), ids, p)[ids[p]] for p in range(6, 17)
    ]
    assert answer.outputs[0].score.value == pytest.approx(np.mean(shadows), abs=1e-5)
    assert answer.usage.nfe == 1  # the report on every token shares the pass
