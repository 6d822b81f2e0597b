"""Attention in blocks: whole passes and cached windows beside an independent model, whatever runs
beside them.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from dise_adapters.local.decoder.batch import TextBatch
from dise_adapters.local.decoder.masks import Masks
from dise_adapters.local.reading import layout
from dise_core import BlockCausal, Distribution, Read
from dise_core.arrays import Ids
from dise_core.plans.reading import CacheHint, CacheSlot
from tests.block_checkpoints import BLOCK, END, KINDS, assert_exact, load, texts_of
from tests.reference_backbone import Reference, block_causal
from tests.reference_blocks import reference_of


def expected_of(model: Reference, ids: Ids, positions: Ids, length: int = BLOCK) -> np.ndarray:
    """Return the log-probabilities at the positions, from one pass over the completed text."""
    ended = ids.tolist() + [END] * (-len(ids) % length)
    logits = model.logits(ended, block_causal(len(ended), length))
    return torch.log_softmax(logits[positions], -1).numpy()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("length", "implementation"), [(1, "sdpa"), (3, "sdpa"), (32, "sdpa"), (4, "eager")]
)
def test_whole_texts_agree_with_an_independent_model(
    folders: dict[str, Path], kind: str, length: int, implementation: str
) -> None:
    predictor = load(kind, folders[kind], BlockCausal(length), attn_implementation=implementation)
    model = reference_of(kind, folders[kind])
    texts = texts_of(1, 9, 9, 12, 40, 41)
    everywhere = [Read(ids, np.arange(len(ids)), Distribution()) for ids in texts]
    some = [Read(ids, np.arange(len(ids))[-3:], Distribution()) for ids in texts]
    for reads in (everywhere, some, everywhere[:1], everywhere[2:4]):
        for read, reading in zip(reads, predictor.read(reads), strict=True):
            assert_exact(
                reading.logprobs, expected_of(model, read.token_ids, read.positions, length)
            )


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_written_one_by_one_against_the_cache_are_those_of_whole_passes(
    folders: dict[str, Path], kind: str
) -> None:
    """Three texts grow side by side; each step changes its last block, then adds another."""
    predictor, model = load(kind, folders[kind]), reference_of(kind, folders[kind])
    texts, random = texts_of(BLOCK, 3 * BLOCK, 6 * BLOCK), np.random.default_rng(1)
    slots = [CacheSlot() for _ in texts]
    predictor.read([_ask(ids, slot, None) for ids, slot in zip(texts, slots, strict=True)])
    for step in range(5):
        starts = [len(ids) - BLOCK for ids in texts]
        # In every other step the finished block runs with the first step of the next one.
        more = BLOCK * (1 + step % 2)
        texts = [np.append(ids[:-BLOCK], random.integers(0, 50, more)) for ids in texts]
        reads = [
            _ask(ids, slot, (start, len(ids)))
            for ids, slot, start in zip(texts, slots, starts, strict=True)
        ]
        for read, reading in zip(reads, predictor.read(reads), strict=True):
            assert reading.is_exact
            assert reading.share < 1 or len(read.token_ids) <= 2 * BLOCK
            assert_exact(reading.logprobs, expected_of(model, read.token_ids, read.positions))


def _ask(ids: Ids, slot: CacheSlot, window: tuple[int, int] | None) -> Read:
    positions = np.arange(*(window or (0, len(ids))))
    return Read(ids, positions, Distribution(), cache=CacheHint(slot, window, 64))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("windows", [[(6, 7), (13, 18)], [(9, 11), (14, 15)], [(17, 18)] * 2])
def test_a_window_that_cuts_blocks_is_exact_too(
    folders: dict[str, Path], kind: str, windows: list[tuple[int, int]]
) -> None:
    """The second window stands behind blocks whose keys the first one made older."""
    predictor, model = load(kind, folders[kind]), reference_of(kind, folders[kind])
    [ids], slot = texts_of(18), CacheSlot()
    predictor.read([_ask(ids, slot, None)])
    for window in windows:
        ids = ids.copy()
        ids[slice(*window)] += 5
        [reading] = predictor.read([_ask(ids, slot, window)])
        assert reading.is_exact
        assert reading.share < 1
        assert_exact(reading.logprobs, expected_of(model, ids, np.arange(*window)))


@pytest.mark.parametrize("kind", KINDS)
def test_texts_that_begin_alike_compute_their_first_blocks_once(
    folders: dict[str, Path], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three texts of one prompt of 14 tokens start together, a fourth later and another of its
    own; then all go on.
    """
    monkeypatch.setattr(layout, "MIN_SHARED", 3 * BLOCK)
    predictor, model = load(kind, folders[kind]), reference_of(kind, folders[kind])
    prompt, *rest = texts_of(14, 6, 6, 10, 6, 4)
    texts = [np.concatenate([prompt, ids]) for ids in rest[:4]] + [rest[4]]
    slots = [CacheSlot() for _ in texts]
    asked = [
        replace(_ask(ids, slot, None), positions=np.arange(min(14, len(ids) - 1), len(ids)))
        for ids, slot in zip(texts, slots, strict=True)
    ]
    readings = [*predictor.read([*asked[:3], asked[4]]), *predictor.read(asked[3:4])]
    # Where row i - 1 answers for position i, one position more is computed.
    more = kind == "qwen2"
    later = (8 + more) / 20  # than the longest text
    shares = [later, later, 1, 1, later]
    assert [reading.share for reading in readings] == shares
    for read, reading in zip([*asked[:3], asked[4], asked[3]], readings, strict=True):
        assert reading.is_exact
        assert_exact(reading.logprobs, expected_of(model, read.token_ids, read.positions))
    for text, slot in zip(texts[:4], slots[:4], strict=True):
        more = np.append(text, [1, 2, 3])
        [reading] = predictor.read([_ask(more, slot, (len(text), len(more)))])
        assert_exact(reading.logprobs, expected_of(model, more, np.arange(len(text), len(more))))


def test_what_a_text_adopts_ends_before_the_first_position_read_and_where_tokens_differ(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "MIN_SHARED", BLOCK)
    [ids] = texts_of(24)
    other = np.append(ids[:11], ids[11:] + 1)
    for positions, text, share in [
        ([20], ids, 4 / 24),
        ([9, 20], ids, 16 / 24),
        ([3], ids, 1),
        ([20], other, 16 / 24),
    ]:
        predictor, slot = load("qwen3", folders["qwen3"]), CacheSlot()
        predictor.read([_ask(ids, slot, None)])
        read = replace(_ask(text, CacheSlot(), None), positions=np.array(positions))
        assert predictor.read([read])[0].share == share


@pytest.mark.parametrize("lengths", [(8, 8), (8, 5, 2), (7, 6), (8, 4), (3,)])
@pytest.mark.parametrize("length", [1, 4, 8])
def test_real_tokens_see_their_blocks_and_no_padding(lengths: tuple[int, ...], length: int) -> None:
    """Of whole texts and of windows, some of which end inside a block; for chosen tokens too."""
    columns = np.array([[0, 2], [1, 1], [0, 1]])[: len(lengths)]
    is_key = np.arange(8) < np.array(lengths)[:, None]
    key_mask = None if is_key.all() else is_key
    for first in (np.zeros(len(lengths), np.int64), np.array(lengths) - 3):
        positions = np.maximum(first, 0)[:, None] + np.arange(8 if not first.any() else 3)
        shared = positions[:1] if (positions == positions[:1]).all() else positions
        batch = TextBatch(np.zeros(is_key.shape, np.int64), key_mask, shared)
        masks = Masks(BlockCausal(length), batch, torch.device("cpu"))
        everywhere = np.tile(np.arange(positions.shape[1]), (len(lengths), 1))
        for chosen, mask in ((everywhere, masks.all()), (columns, masks.at(columns))):
            shape = (len(lengths), 1, chosen.shape[1], 8)
            found = np.ones(shape, bool) if mask is None else mask.expand(shape).numpy()
            for text, column in np.ndindex(chosen.shape):
                position = positions[text, chosen[text, column]]
                if position < lengths[text]:
                    sees = [
                        k // length <= position // length and k < lengths[text] for k in range(8)
                    ]
                    assert found[text, 0, column].tolist() == sees
