"""Groups runs into batches with little padding, each the input of a forward pass."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from torch import Tensor

from dise_adapters.local.decoder.batch import TextBatch
from dise_adapters.local.decoder.kv_cache import CachedPass, KVCache
from dise_adapters.local.decoder.padding import padded_texts
from dise_adapters.local.devices import on_device
from dise_adapters.local.reading.layout import Run
from dise_core import Ids, Mask

MAX_KEY_PADDING = 0.5
"""The largest share of a cached batch's keys that may be padding: a smaller one splits
batches up, a larger one pads short texts' keys to the length of the longest.
"""


def batches(
    runs: Sequence[Run], max_padding: float, max_tokens: float = math.inf
) -> Iterator[list[Run]]:
    """Yield the runs in batches. Windows attend to cached keys, whole texts to their own,
    overlays to parts of a text: a batch holds one kind only.

    At most `max_padding` of a batch's tokens, and MAX_KEY_PADDING of its keys, are
    padding. A batch of several runs holds at most `max_tokens` tokens, padding included.
    """
    windows = [run for run in runs if run.is_window]
    overlaid = [run for run in runs if run.groups is not None]
    plain = [run for run in runs if not run.is_window and run.groups is None]
    for alike in filter(None, (plain, windows, overlaid)):
        yield from _padded_batches(alike, max_padding, max_tokens)


def _padded_batches(
    runs: Sequence[Run], max_padding: float, max_tokens: float
) -> Iterator[list[Run]]:
    """Yield runs of one kind in batches, those with the most keys first."""
    batch: list[Run] = []
    sequences = tokens = keys = width = 0
    for run in sorted(runs, key=lambda run: (-run.num_keys, -run.length)):
        count, length = len(run.token_ids), run.length
        sequences, tokens = sequences + count, tokens + count * length
        keys, width = keys + count * run.num_keys, max(width, length)
        is_dense = tokens >= (1 - max_padding) * sequences * width
        most_keys = sequences * (batch or [run])[0].num_keys
        is_dense = is_dense and keys >= (1 - MAX_KEY_PADDING) * most_keys
        if batch and not (is_dense and sequences * width <= max_tokens):
            yield batch
            batch, sequences, tokens = [], count, count * length
            keys, width = count * run.num_keys, length
        batch.append(run)
    if batch:
        yield batch


def text_batch(batch: Sequence[Run], multiple: int, room: KVCache | None) -> TextBatch:
    """Return runs of one kind as a batch, each text before its unconditional one."""
    texts = [ids for run in batch for ids in run.token_ids]
    input_ids, is_real = padded_texts(texts, multiple)
    positions, groups = _positions(batch, input_ids.shape[1])
    cached = None
    if room is not None and any(run.rows is not None for run in batch):
        cached = _cached_pass(room, batch, is_real, input_ids.shape, multiple)
    return TextBatch(input_ids, is_real, positions, groups, cached)


def _positions(batch: Sequence[Run], width: int) -> tuple[Ids, Ids | None]:
    """Return the positions and groups of a batch as TextBatch has them. Windows share one
    line only if all begin at the same position. Those of an overlaid text's padding are
    the first token's, so that it attends to something.
    """
    if batch[0].is_window:
        starts = [run.first for run in batch]
        if min(starts) == max(starts):
            starts = starts[:1]
        return np.array(starts)[:, None] + np.arange(width), None
    if batch[0].groups is None:
        return np.arange(width)[None], None
    runs = [run for run in batch for _ in run.token_ids]
    positions, groups = ([getattr(run, part) for run in runs] for part in ("positions", "groups"))
    return _padded(positions, width), _padded(groups, width)


def _padded(lines: Sequence[Ids], width: int) -> Ids:
    return np.stack([np.append(line, np.full(width - len(line), line[0])) for line in lines])


def _cached_pass(
    room: KVCache, batch: Sequence[Run], is_real: Mask | None, shape: tuple[int, ...], multiple: int
) -> CachedPass:
    """Return what the pass of a batch of that shape caches, and reads from the cache."""
    runs = [run for run in batch for _ in run.token_ids]
    cached_runs = [(run.rows, run) for run in runs if run.rows is not None]
    targets = np.concatenate(
        [rows[run.first : run.first + run.length] for rows, run in cached_runs]
    )
    # Runs that found no room share the batch, but are not cached.
    has_rows = np.array([run.rows is not None for run in runs])[:, None]
    is_cached = np.broadcast_to(has_rows, shape) if is_real is None else has_rows & is_real
    memory, device = room.memory(), room.device
    fresh, written = on_device(device, np.flatnonzero(is_cached), targets)
    if not batch[0].is_window:
        return CachedPass(memory, fresh, written)
    texts = [rows for rows, _ in cached_runs]
    padded, is_key = padded_texts(texts, multiple)
    read: Tensor | tuple[int, int] | None = _side_by_side(texts, padded.shape[1], memory.shape[2])
    if read is None:
        [read] = on_device(device, padded.ravel())
    return CachedPass(memory, fresh, written, read, (len(texts), padded.shape[1]), is_key)


def _side_by_side(texts: Sequence[Ids], width: int, num_rows: int) -> tuple[int, int] | None:
    """Return the first row of texts whose rows follow one another, and the distance from
    one text to the next: at least `width`, so that what stands behind each is its
    padding. None for texts that do not lie so.
    """
    first = int(texts[0][0])
    step = int(texts[1][0]) - first if len(texts) > 1 else width
    if step < width or first + len(texts) * step > num_rows:
        return None
    for index, rows in enumerate(texts):
        if rows[0] != first + index * step or (np.diff(rows) != 1).any():
            return None
    return first, step
