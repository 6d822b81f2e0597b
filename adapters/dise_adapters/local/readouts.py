"""The readouts on torch tensors: from logits [R, V] to a few numbers per row, without float64 over
the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from dise_core.arrays import Ids
from dise_core.odds import probabilities
from dise_core.reading import (
    Candidates,
    Confidence,
    Distribution,
    Read,
    Reading,
    TokenLogProbs,
    TopLogProbs,
)

Recipe = tuple[object, ...]
"""What reads must have in common to be computed together: the readout without its per-row values.
"""


@dataclass(slots=True)
class RowAnswers:
    """The answers for R rows of logits: token_ids and logprobs, both [R] or [R, k], and confidences
    [R] or empty.

    A confidence that is a probability is held as log-odds: near 1 all probabilities would round to
    1 in float32.
    """

    token_ids: Tensor
    logprobs: Tensor
    confidences: Tensor


@dataclass(slots=True)
class ReadoutGroup:
    """Reads that are computed together. `indices`: of the reads. `per_row`: one target or uniform
    number per row, or None; on the host at first.

    `inverse`: the row that answers each position of the reads, in order; None if each has its own.
    """

    readout: object
    indices: list[int]
    num_rows: int
    per_row: Tensor | None
    inverse: Ids | None = None

    def without_repeats(self, where: Ids) -> tuple[ReadoutGroup, Ids]:
        """Return the group with each (row of the states, target) pair once, and the indices of the
        rows that are kept. where: the row of the states for each row, int64 [num_rows].

        A score and the report on its tokens often ask for the same pairs.
        """
        if not isinstance(self.readout, TokenLogProbs) or self.per_row is None:
            return self, np.arange(self.num_rows)
        targets = self.per_row.numpy()
        keys = where * (targets.max(initial=0) + 1) + targets
        _, stays, inverse = np.unique(keys, return_index=True, return_inverse=True)
        return ReadoutGroup(
            self.readout, self.indices, len(stays), self.per_row[torch.from_numpy(stays)], inverse
        ), stays

    def to(self, device: torch.device) -> ReadoutGroup:
        """Return the group with `per_row` on the device."""
        return self if self.per_row is None else replace(self, per_row=self.per_row.to(device))


def group_reads(reads: Sequence[Read]) -> list[ReadoutGroup]:
    """Return the reads in groups of one recipe each; a group's rows follow its `indices`."""
    groups: dict[Recipe, list[int]] = {}
    for index, read in enumerate(reads):
        groups.setdefault(_recipe(read), []).append(index)
    return [_group([reads[index] for index in indices], indices) for indices in groups.values()]


def answer_rows(logits: Tensor, group: ReadoutGroup, rows: slice) -> RowAnswers:
    """Return the group's answers for float32 logits [R, V], which may be overwritten. rows: the
    slice of the group's rows that they are.
    """
    match group.readout:
        case TokenLogProbs():
            assert group.per_row is not None
            return _token_logprobs(logits, group.per_row[rows])
        case Candidates():
            return _candidates(
                logits, group.readout, None if group.per_row is None else group.per_row[rows]
            )
        case TopLogProbs():
            logprobs, token_ids = torch.topk(
                logits - _log_normalizer(logits), min(group.readout.k, logits.shape[-1])
            )
            return RowAnswers(token_ids, logprobs, logprobs.new_zeros(0))
        case Distribution():
            token_ids = torch.arange(logits.shape[-1], device=logits.device).expand(logits.shape)
            return RowAnswers(token_ids, torch.log_softmax(logits, dim=-1), logits.new_zeros(0))
    raise TypeError(f"unknown readout {group.readout!r}")


def split_answers(
    group: ReadoutGroup, answers: Iterable[RowAnswers], reads: Sequence[Read]
) -> Iterator[tuple[int, Reading]]:
    """Yield the index and the Reading of each read in the group."""
    joined = _joined(answers, group.num_rows)
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


def _joined(answers: Iterable[RowAnswers], num_rows: int) -> RowAnswers:
    """Return the chunks' answers as one.

    Memory for all is allocated at once: small tensors kept from each chunk would fragment the
    memory that the next chunk's logits need.
    """
    nothing = torch.zeros(0)
    joined, start = RowAnswers(nothing.long(), nothing, nothing), 0
    for answer in answers:
        parts = (answer.token_ids, answer.logprobs, answer.confidences)
        if start == 0:
            joined = RowAnswers(
                *(
                    part.new_empty((min(num_rows, len(part) * num_rows), *part.shape[1:]))
                    for part in parts
                )
            )
        stop = start + len(answer.token_ids)
        for whole, part in zip(
            (joined.token_ids, joined.logprobs, joined.confidences), parts, strict=True
        ):
            whole[start:stop] = part
        start = stop
    return joined


def _token_logprobs(logits: Tensor, targets: Tensor) -> RowAnswers:
    chosen, highest = logits.gather(-1, targets[:, None]), logits.amax(-1, keepdim=True)
    normalizer = logits.sub_(highest).exp_().sum(-1, keepdim=True).log_().add_(highest)
    return RowAnswers(targets, (chosen - normalizer)[:, 0], logits.new_zeros(0))


def _candidates(logits: Tensor, readout: Candidates, uniforms: Tensor | None) -> RowAnswers:
    work, forbidden = logits.clone(), _ids(readout.forbidden, logits.device)
    work[:, forbidden] = -torch.inf
    drawn_from = _filtered(work, readout) if uniforms is not None or readout.is_tempered else work
    token_ids = work.argmax(-1) if uniforms is None else _draw(drawn_from, uniforms)
    ranked_by = drawn_from if readout.is_tempered else logits
    is_as_it_is = not readout.is_tempered and not readout.unranked
    confidences = None if is_as_it_is else _confidences(ranked_by, token_ids, readout)
    chosen = logits.gather(-1, token_ids[:, None])
    work[:, forbidden] = logits[:, forbidden]
    others = _log_normalizer(work.scatter_(-1, token_ids[:, None], -torch.inf))
    normalizer = torch.logaddexp(chosen, others)
    # The difference is the candidate's log-odds, precise where its probability rounds to 1.
    if confidences is None and readout.confidence == "probability":
        confidences = (chosen - others)[:, 0]
    elif confidences is None:
        confidences = _spread(logits - normalizer, readout.confidence)
    return RowAnswers(token_ids, (chosen - normalizer)[:, 0], confidences)


def _confidences(logits: Tensor, token_ids: Tensor, readout: Candidates) -> Tensor:
    """Return the confidence in each candidate, [R], under softmax(logits) without the unranked ids;
    as log-odds if it is a probability.
    """
    unranked = _ids(readout.unranked, logits.device)
    ranked = logits.index_fill(-1, unranked, -torch.inf)
    chosen = ranked.gather(-1, token_ids[:, None])
    if readout.confidence == "probability":
        others = _log_normalizer(ranked.scatter(-1, token_ids[:, None], -torch.inf))
        confidences = (chosen - others)[:, 0]
    else:
        confidences = _spread(torch.log_softmax(ranked, -1), readout.confidence)
    return confidences.masked_fill(torch.isin(token_ids, unranked), -torch.inf)


@lru_cache
def _ids(token_ids: tuple[int, ...], device: torch.device) -> Tensor:
    """Return token ids as a tensor on the device, cached: they are the same at every step."""
    return torch.tensor(token_ids, dtype=torch.int64, device=device)


def _spread(logprobs: Tensor, kind: Confidence) -> Tensor:
    """Return the margin or the negative entropy of each row's distribution, [R]."""
    if kind == "margin":
        first, second = torch.topk(logprobs, 2).values.exp().unbind(-1)
        return first - second
    return torch.xlogy(logprobs.exp(), logprobs.exp()).sum(-1)


def _filtered(allowed: Tensor, readout: Candidates) -> Tensor:
    """Return the logits that candidates are drawn from, up to a constant: tempered, and -inf for
    tokens that top-k or top-p drop.
    """
    return _keep_likely((allowed - allowed.amax(-1, keepdim=True)) / readout.divisor, readout)


def _draw(drawn_from: Tensor, uniforms: Tensor) -> Tensor:
    """Return the token at which each row's cumulative distribution passes its uniform number, int64
    [R].

    For NaN logits it is an arbitrary token, whose log-probability is NaN.
    """
    cumulative = torch.softmax(drawn_from, dim=-1).cumsum(-1)
    total = cumulative[:, -1:]
    # A target that rounds up to the total would lie past every token.
    targets = torch.minimum(
        uniforms[:, None].to(total.dtype) * total, torch.nextafter(total, torch.zeros_like(total))
    )
    return torch.searchsorted(cumulative, targets, right=True)[:, 0].clamp_max(
        cumulative.shape[-1] - 1
    )


def _keep_likely(logits: Tensor, readout: Candidates) -> Tensor:
    """Return the logits with all but the top k, and then all but the top p, set to -inf; the
    likeliest token is always kept.
    """
    if 0 < readout.top_k < logits.shape[-1]:
        kth = torch.topk(logits, readout.top_k).values[:, -1:]
        logits = logits.masked_fill(logits < kth, -torch.inf)
    if readout.top_p < 1:
        ordered, order = logits.sort(dim=-1, descending=True, stable=True)
        probabilities = ordered.softmax(-1)
        before = probabilities.cumsum(-1) - probabilities
        dropped = torch.zeros_like(before, dtype=torch.bool).scatter(
            -1, order, before >= readout.top_p
        )
        logits = logits.masked_fill(dropped, -torch.inf)
    return logits


def _log_normalizer(logits: Tensor) -> Tensor:
    return torch.logsumexp(logits, dim=-1, keepdim=True)


def _recipe(read: Read) -> Recipe:
    match readout := read.readout:
        case TokenLogProbs():
            return (TokenLogProbs,)
        case Candidates():
            is_filtered = readout.temperature > 0 or readout.is_tempered
            draw = (readout.temperature, readout.top_p, readout.top_k) if is_filtered else ()
            ranking = (readout.confidence, readout.is_tempered, readout.unranked)
            return (Candidates, readout.forbidden, *ranking, *draw)
        case _:
            return (readout,)


def _group(reads: Sequence[Read], indices: list[int]) -> ReadoutGroup:
    values = [_per_row(read) for read in reads]
    per_row = None
    if values[0] is not None:
        per_row = torch.from_numpy(np.concatenate(values))  # type: ignore[arg-type]
    return ReadoutGroup(
        reads[0].readout, indices, sum(len(read.positions) for read in reads), per_row
    )


def _per_row(read: Read) -> Ids | np.ndarray | None:
    match readout := read.readout:
        case TokenLogProbs():
            return readout.targets
        case Candidates() if readout.temperature > 0 and readout.noise is not None:
            return readout.noise.uniforms(read.positions)
        case _:
            return None
