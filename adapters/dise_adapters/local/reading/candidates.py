"""A candidate token per row of logits, the likeliest or drawn, and its confidence."""

from functools import lru_cache
from itertools import count

import torch
from torch import Tensor

from dise_core import Candidates, Confidence
from dise_core.plans.readouts import BiasPairs


def choose(
    logits: Tensor, readout: Candidates, uniforms: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the candidate of each row of float32 logits [R, V], its log-probability, and
    the confidence in it, all [R]; a confidence that is a probability as log-odds.

    uniforms: one number per row where candidates are drawn, None where they are the
    likeliest.
    """
    work = _writable(logits, readout)
    drawn_from = _filtered(work, readout) if uniforms is not None or readout.is_tempered else work
    token_ids = work.argmax(-1) if uniforms is None else _draw(drawn_from, uniforms)
    # Where no candidate has any probability, the forbidden ones are as likely as the rest.
    is_possible = work.gather(-1, token_ids[:, None])[:, 0] != -torch.inf
    token_ids = token_ids.where(is_possible, _first(readout.allowed, readout.forbidden))
    ranked_by = drawn_from if readout.is_tempered else logits
    is_plain = not readout.is_tempered and not readout.unranked
    confidences = None if is_plain else _confidences(ranked_by, token_ids, readout)
    candidate = logits.gather(-1, token_ids[:, None])
    alternatives = _restored(work, logits, readout).scatter_(-1, token_ids[:, None], -torch.inf)
    remainder = log_normalizer(alternatives)
    # The candidate's log-odds are precise where its probability rounds to 1.
    odds = candidate - remainder
    if confidences is None and readout.confidence == "probability":
        confidences = odds[:, 0]
    elif confidences is None:
        normalizer = torch.logaddexp(candidate, remainder)
        confidences = spread(logits - normalizer, readout.confidence)
    below = candidate - torch.maximum(candidate, remainder)
    return token_ids, (below - odds.abs().neg_().exp_().log1p_())[:, 0], confidences


@lru_cache(16)
def _first(allowed: tuple[int, ...], forbidden: tuple[int, ...]) -> int:
    """Return the first id that may be a candidate; all are allowed if none is named."""
    refused = frozenset(forbidden)
    return next((token for token in sorted(allowed) or count() if token not in refused), 0)


def _writable(logits: Tensor, readout: Candidates) -> Tensor:
    """Return a biased copy of the logits, -inf for the ids that are no candidates."""
    if readout.allowed:
        allowed = ids_on(readout.allowed, logits.device)
        work = torch.full_like(logits, -torch.inf)
        work[:, allowed] = logits[:, allowed]
    else:
        work = logits.clone()
    if readout.bias:
        token_ids, biases = _biases(readout.bias, logits.device)
        work[:, token_ids] += biases
    work[:, ids_on(readout.forbidden, logits.device)] = -torch.inf
    return work


def _restored(work: Tensor, logits: Tensor, readout: Candidates) -> Tensor:
    """Undo `_writable` in place, and return its tensor."""
    if readout.allowed:
        return work.copy_(logits)
    changed = ids_on(readout.forbidden, logits.device)
    if readout.bias:
        changed = torch.cat([changed, _biases(readout.bias, logits.device)[0]])
    work[:, changed] = logits[:, changed]
    return work


def _confidences(logits: Tensor, token_ids: Tensor, readout: Candidates) -> Tensor:
    """Return the confidence in each candidate, [R], among the ranked ids."""
    unranked = ids_on(readout.unranked, logits.device)
    ranked = logits.index_fill(-1, unranked, -torch.inf)
    if readout.confidence == "probability":
        candidate = ranked.gather(-1, token_ids[:, None])
        remainder = log_normalizer(ranked.scatter(-1, token_ids[:, None], -torch.inf))
        confidences = (candidate - remainder)[:, 0]
    else:
        confidences = spread(torch.log_softmax(ranked, -1), readout.confidence)
    return confidences.masked_fill(torch.isin(token_ids, unranked), -torch.inf)


@lru_cache(16)
def ids_on(token_ids: tuple[int, ...], device: torch.device) -> Tensor:
    """Return token ids on the device, cached: they are the same at every step."""
    return torch.tensor(token_ids, dtype=torch.int64, device=device)


@lru_cache(16)
def _biases(pairs: BiasPairs, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the token ids and their biases on the device, cached like `ids_on`."""
    token_ids, biases = zip(*pairs, strict=True)
    return ids_on(token_ids, device), torch.tensor(biases, dtype=torch.float32, device=device)


def spread(logprobs: Tensor, confidence: Confidence) -> Tensor:
    """Return the margin or the negative entropy of each row's distribution, [R]."""
    if confidence == "margin":
        first, second = torch.topk(logprobs, 2).values.exp().unbind(-1)
        return first - second
    return torch.xlogy(logprobs.exp(), logprobs.exp()).sum(-1)


def _filtered(allowed: Tensor, readout: Candidates) -> Tensor:
    """Return the logits that candidates are drawn from, up to a constant: tempered, and
    -inf for tokens that top-k, and then top-p, drop; the likeliest token is always kept.
    """
    logits = (allowed - allowed.amax(-1, keepdim=True)) / readout.divisor
    if 0 < readout.top_k < logits.shape[-1]:
        kth = torch.topk(logits, readout.top_k).values[:, -1:]
        logits = logits.masked_fill(logits < kth, -torch.inf)
    if readout.top_p < 1:
        ordered, order = logits.sort(dim=-1, descending=True, stable=True)
        probabilities = ordered.softmax(-1)
        is_dropped = probabilities.cumsum(-1) - probabilities >= readout.top_p
        dropped = torch.zeros_like(is_dropped).scatter(-1, order, is_dropped)
        logits = logits.masked_fill(dropped, -torch.inf)
    return logits


def _draw(drawn_from: Tensor, uniforms: Tensor) -> Tensor:
    """Return the token at which each row's cumulative distribution passes its uniform
    number, int64 [R]; for NaN logits an arbitrary token, whose log-probability is NaN.
    """
    cumulative = torch.softmax(drawn_from, dim=-1).cumsum(-1)
    total = cumulative[:, -1:]
    # A target that rounds up to the total would lie past every token.
    limit = torch.nextafter(total, torch.zeros_like(total))
    targets = torch.minimum(uniforms[:, None].to(total.dtype) * total, limit)
    passed = torch.searchsorted(cumulative, targets, right=True)[:, 0]
    return passed.clamp_max(cumulative.shape[-1] - 1)


def log_normalizer(logits: Tensor) -> Tensor:
    """Return log sum exp of each row, [R, 1]."""
    return torch.logsumexp(logits, dim=-1, keepdim=True)
