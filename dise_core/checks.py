"""What strategies promise, checked where their answers come in: a plugin that breaks a promise is
named, with the promise, and its request fails alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from pydantic import SerializeAsAny

from dise_core.arrays import Ids, Mask
from dise_core.errors import PluginError, shown
from dise_core.interfaces import Reviser, Scorer, Selector, Strategy, UnmaskingPolicy
from dise_core.model import ModelInfo
from dise_core.outputs import Evaluation, Generation, Score
from dise_core.revisions import Revision
from dise_core.sequence import TokenSequence, are_within


class CheckedSelector(Selector):
    """Selects what another selector does, and raises PluginError for a bad mask."""

    inner: SerializeAsAny[Selector]

    def select(self, sequence: TokenSequence) -> Mask:
        mask: object = self.inner.select(sequence)
        if (
            not isinstance(mask, np.ndarray)
            or mask.dtype != np.bool_
            or mask.shape != (len(sequence),)
        ):
            raise _broken(
                "selector", self.inner, f"a mask, bool [{len(sequence)}]", _described(mask)
            )
        return mask


def checked_choice(policy: UnmaskingPolicy, chosen: object, num_masked: int) -> Ids:
    """Return the indices that a policy chose among so many masked positions, int64 [<= M]."""
    return _checked_indices(policy, chosen, num_masked)


def checked_edits(policy: UnmaskingPolicy, edited: object, num_drafts: int) -> Ids:
    """Return the indices that a policy edits among so many committed positions, int64 [<= E]."""
    return _checked_indices(policy, edited, num_drafts)


def _checked_indices(policy: UnmaskingPolicy, chosen: object, count: int) -> Ids:
    indices = np.asarray(chosen)
    if indices.size == 0:
        return np.zeros(0, np.int64)
    listed = indices.tolist() if indices.ndim == 1 and indices.dtype.kind in "iu" else [-1]
    if not 0 <= min(listed) <= max(listed) < count or len(set(listed)) < len(listed):
        promise = f"distinct indices in 0..{count - 1}, int64" if count else "no index"
        raise _broken("unmasking policy", policy, promise, _described(chosen))
    return indices


def checked_score(scorer: Scorer, score: object) -> Score:
    """Return the score of a text."""
    return _checked_score("scorer", scorer, score)


def _checked_score(kind: str, strategy: Strategy, score: object) -> Score:
    if not isinstance(score, Score):
        raise _broken(kind, strategy, "a Score", _described(score))
    if not isinstance(score.value, int | float) or not score.value < math.inf:
        raise _broken(kind, strategy, "a value that is a finite number, or -inf", score.value)
    positions = score.positions
    if not isinstance(positions, np.ndarray) or positions.dtype.kind not in "iu":
        raise _broken(kind, strategy, "positions, int64", _described(positions))
    return score


def checked_generation(
    kind: str, strategy: Strategy, generation: object, prompt: Ids, mask_id: int | None
) -> Generation:
    """Return a response and its evaluation. kind: of the strategy, "length controller" say."""
    if not (
        isinstance(generation, Generation)
        and isinstance(generation.sequence, TokenSequence)
        and isinstance(generation.evaluation, Evaluation)
    ):
        raise _broken(kind, strategy, "a Generation", _described(generation))
    text = generation.sequence
    if not np.array_equal(text.prompt, prompt):
        raise _broken(kind, strategy, "a text that begins with the prompt", "")
    if (np.asarray(text.ids) == mask_id).any():
        raise _broken(kind, strategy, "a text without masks", "one with a mask")
    return generation


def checked_revision(
    reviser: Reviser, revised: object, before: TokenSequence, info: ModelInfo, most: int
) -> Generation:
    """Return a response that was revised, of at most so many tokens, and its evaluation."""
    mask_id = info.special.mask_id
    generation = checked_generation("reviser", reviser, revised, before.prompt, mask_id)
    _checked_score("reviser", reviser, generation.evaluation.score)
    for promise, is_kept, found in _promises_of_revision(generation, before, info, most):
        if not is_kept:
            raise _broken("reviser", reviser, promise, found)
    return generation


def _promises_of_revision(
    generation: Generation, before: TokenSequence, info: ModelInfo, most: int
) -> Iterator[tuple[str, bool, str]]:
    """Yield each promise, whether it is kept, and what was found instead."""
    text, rounds, evaluation = generation.sequence, generation.revisions, generation.evaluation
    ids, length = text.ids, len(text.response)
    is_flat = isinstance(ids, np.ndarray) and ids.dtype == np.int64 and ids.ndim == 1
    yield "token ids, int64 [N]", is_flat, _described(ids)
    vocabulary = f"token ids in 0..{info.vocab_size - 1}"
    yield vocabulary, are_within(ids, info.vocab_size), _described(ids)
    yield f"a response of at most {most} tokens", length <= most, f"one of {length}"
    is_start = text.prompt_length == before.prompt_length
    yield "a text that begins with the prompt", is_start, ""
    is_whole = evaluation.tokens is None or np.shape(evaluation.tokens.logprobs) == (length,)
    yield f"a report on all {length} tokens", is_whole, ""
    scored = evaluation.score.positions
    yield f"positions in 0..{len(ids) - 1}", are_within(scored, len(ids)), _described(scored)
    is_trace = isinstance(rounds, tuple) and all(isinstance(each, Revision) for each in rounds)
    yield "a tuple of Revisions", is_trace, _described(rounds)
    is_told = np.array_equal(ids, before.ids) or any(each.is_accepted for each in rounds)
    yield "an accepted Revision of a text that it changed", is_told, "none"


def _broken(kind: str, strategy: Strategy, promise: str, found: object) -> PluginError:
    cls = type(strategy)
    instead = f", not {found}" if found != "" else ""
    return PluginError(
        f"{kind} {cls.__qualname__} of {cls.__module__} must return {promise}{instead}",
        cls.__module__,
    )


def _described(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} {list(value.shape)}: {shown(value, 60)}"
    return f"{type(value).__name__}: {shown(value, 60)}"
