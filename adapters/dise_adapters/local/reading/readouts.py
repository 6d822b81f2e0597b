"""The readouts: from logits [R, V] to a few numbers per row, without float64."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dise_adapters.local.reading.candidates import choose, ids_on, spread
from dise_core import Candidates, Distribution, Ids, Read, Reading, TokenLogProbs, TopLogProbs
from dise_core.arrays import probabilities
from dise_core.plans.readouts import DRAWING, Readout

PER_ROW = ("targets", "noise")
"""The fields of readouts that are about each row, in which reads of one group may differ."""

UNUSED = (*PER_ROW, *DRAWING)
"""The same, and what changes nothing where no candidate is drawn or ranked by what is drawn."""


class RowAnswers(NamedTuple):
    """The answers for R rows of logits: token_ids and logprobs, both [R] or [R, k],
    confidences [R] or empty; probabilities as log-odds, since near 1 all
    would round to 1 in float32.
    """

    token_ids: Tensor
    logprobs: Tensor
    confidences: Tensor


@dataclass(slots=True)
class ReadoutGroup:
    """Reads that are computed together. indices: of the reads. per_row: one target or
    uniform number per row, or None; on the host at first. inverse: the row that answers
    each position of the reads, in order; None if each has its own.
    """

    readout: Readout
    indices: list[int]
    num_rows: int
    per_row: Tensor | None
    inverse: Ids | None = None

    def without_repeats(self, lines: Ids) -> tuple[ReadoutGroup, Ids]:
        """Return the group with each (row of the states, target) pair once, and the
        indices of the rows that are kept. lines: the row of the states for each row,
        int64 [num_rows].

        A score and the report on its tokens often ask for the same pairs.
        """
        if not isinstance(self.readout, TokenLogProbs) or self.per_row is None:
            return self, np.arange(self.num_rows)
        targets = self.per_row.numpy()
        keys = lines * (targets.max(initial=0) + 1) + targets
        _, stays, inverse = np.unique(keys, return_index=True, return_inverse=True)
        per_row = self.per_row[torch.from_numpy(stays)]
        group = ReadoutGroup(self.readout, self.indices, len(stays), per_row, inverse)
        return group, stays

    def to(self, device: torch.device) -> ReadoutGroup:
        return self if self.per_row is None else replace(self, per_row=self.per_row.to(device))


def group_reads(reads: Mapping[int, Read]) -> list[ReadoutGroup]:
    """Return numbered reads in groups of a recipe each; rows follow the `indices`."""
    groups: dict[Hashable, list[int]] = {}
    for index, read in reads.items():
        groups.setdefault(_recipe(read), []).append(index)
    return [_group([reads[index] for index in indices], indices) for indices in groups.values()]


def readings_of(
    groups: Sequence[ReadoutGroup],
    reads: Sequence[Read],
    size: int,
    logits_of: Callable[[slice], Tensor],
) -> Iterator[tuple[int, Reading]]:
    """Yield the index and the Reading of each read in groups that have the same rows.
    logits_of: returns the float32 logits [R, V] of a slice of these, at most `size`; they
    may be overwritten.
    """
    num_rows, answers = groups[0].num_rows, [AnsweredRows(group.num_rows) for group in groups]
    for start in range(0, num_rows, size):
        rows = slice(start, min(start + size, num_rows))
        logits = logits_of(rows)
        for group, answered in zip(groups, answers, strict=True):
            is_last = group is groups[-1]
            answered.add(answer_rows(logits if is_last else logits.clone(), group, rows))
    for group, answered in zip(groups, answers, strict=True):
        yield from split_answers(group, answered.joined, reads)


def answer_rows(logits: Tensor, group: ReadoutGroup, rows: slice) -> RowAnswers:
    """Return the answers for float32 logits [R, V] of `rows`; may overwrite them."""
    match group.readout:
        case TokenLogProbs():
            assert group.per_row is not None
            return _token_logprobs(logits, group.per_row[rows])
        case Candidates():
            uniforms = None if group.per_row is None else group.per_row[rows]
            return RowAnswers(*choose(logits, group.readout, uniforms))
        case TopLogProbs():
            targets = None if group.per_row is None else group.per_row[rows]
            return _top_logprobs(logits, group.readout, targets)
        case Distribution():
            token_ids = torch.arange(logits.shape[-1], device=logits.device).expand(logits.shape)
            logprobs = _all_logprobs(logits, logits.argmax(-1, keepdim=True))
            return RowAnswers(token_ids, logprobs, logits.new_zeros(0))
    raise TypeError(f"unknown readout {group.readout!r}")


def split_answers(
    group: ReadoutGroup, joined: RowAnswers, reads: Sequence[Read]
) -> Iterator[tuple[int, Reading]]:
    """Yield the index and the Reading of each read in the group. joined: of all its rows."""
    token_ids, logprobs = joined.token_ids.cpu().numpy(), joined.logprobs.float().cpu().numpy()
    confidences = joined.confidences.cpu().numpy().astype(np.float64)
    if isinstance(group.readout, Candidates) and group.readout.confidence == "probability":
        confidences = probabilities(confidences)
    if group.inverse is not None:
        token_ids, logprobs = token_ids[group.inverse], logprobs[group.inverse]
    start = 0
    for index in group.indices:
        rows = slice(start, start + len(reads[index].positions))
        yield index, Reading(token_ids[rows], logprobs[rows], confidences[rows])
        start = rows.stop


class AnsweredRows:
    """The answers of chunks of rows, joined into one.

    Memory for all is allocated at once: small tensors kept from each chunk would fragment
    the memory that the next chunk's logits need.
    """

    def __init__(self, num_rows: int) -> None:
        nothing = torch.zeros(0)
        self.joined, self._num_rows = RowAnswers(nothing.long(), nothing, nothing), num_rows
        self._stop = 0

    def add(self, answers: RowAnswers) -> None:
        """Take the answers of the next rows."""
        if self._stop == 0:
            sizes = (min(self._num_rows, len(part) * self._num_rows) for part in answers)
            pairs = zip(answers, sizes, strict=True)
            parts = (part.new_empty((size, *part.shape[1:])) for part, size in pairs)
            self.joined = RowAnswers(*parts)
        start, self._stop = self._stop, self._stop + len(answers.token_ids)
        for memory, part in zip(self.joined, answers, strict=True):
            memory[start : self._stop] = part


def _token_logprobs(logits: Tensor, targets: Tensor) -> RowAnswers:
    columns = targets[:, None]
    highest = logits.amax(-1, keepdim=True)
    shifted = logits.gather(-1, columns).sub_(highest)
    # Beside a target of 1 the others, 1e-12 say, would be rounded off: they are summed alone.
    remainder = logits.sub_(highest).exp_().scatter_(-1, columns, 0.0).sum(-1, keepdim=True)
    logprobs = shifted - remainder.add_(shifted.expm1()).log1p_()
    return RowAnswers(targets, logprobs[:, 0], logits.new_zeros(0))


def _all_logprobs(logits: Tensor, likeliest: Tensor) -> Tensor:
    """Turn logits [R, V] into log-probabilities in place; likeliest: int64 [R, 1]."""
    logits.sub_(logits.gather(-1, likeliest))
    remainder = logits.exp().scatter_(-1, likeliest, 0.0).sum(-1, keepdim=True)
    return logits.sub_(remainder.log1p_())


def _top_logprobs(logits: Tensor, readout: TopLogProbs, targets: Tensor | None) -> RowAnswers:
    best = torch.topk(logits, min(max(readout.k, 1), logits.shape[-1])).indices
    logprobs = _all_logprobs(logits, best[:, :1])
    parts = [best[:, : readout.k], ids_on(readout.ids, logits.device).expand(len(logits), -1)]
    if targets is not None:
        parts.append(targets[:, None])
    token_ids = torch.cat(parts, dim=-1)
    entropies = spread(logprobs, "entropy") if readout.with_entropy else logits.new_zeros(0)
    return RowAnswers(token_ids, logprobs.gather(-1, token_ids), entropies)


@cache
def _settings(kind: type[Readout], left_out: tuple[str, ...]) -> Callable[[Readout], Hashable]:
    """Return what gives a readout's kind and its fields, but for those left out."""
    names = (field.name for field in fields(kind) if field.name not in left_out)
    return attrgetter("__class__", *names)


def _recipe(read: Read) -> Hashable:
    """Return what reads that are computed together share: the readout's fields, and of
    per-row values only whether they are there.
    """
    readout = read.readout
    is_plain = isinstance(readout, Candidates) and not (readout.is_drawn or readout.is_tempered)
    has_targets = isinstance(readout, TopLogProbs) and readout.targets is not None
    kind: Any = type(readout)  # hashable, whatever mypy says
    shared = _settings(kind, UNUSED if is_plain else PER_ROW)
    return shared(readout), has_targets


def _group(reads: Sequence[Read], indices: list[int]) -> ReadoutGroup:
    values = [_per_row(read) for read in reads]
    num_rows = sum(len(read.positions) for read in reads)
    per_row = None
    if values[0] is not None:
        per_row = torch.from_numpy(np.concatenate(values))  # type: ignore[arg-type]
    return ReadoutGroup(reads[0].readout, indices, num_rows, per_row)


def _per_row(read: Read) -> Ids | np.ndarray | None:
    match readout := read.readout:
        case TokenLogProbs(targets) | TopLogProbs(targets=targets):
            return targets
        case Candidates() if readout.is_drawn and readout.noise is not None:
            return readout.noise.uniforms(read.positions)
        case _:
            return None
