"""What strategies promise, checked where their answers come in: a plugin that breaks a promise is
named, with the promise, and its request fails alone.
"""

from __future__ import annotations

import math

import numpy as np
from pydantic import SerializeAsAny

from dise_core.arrays import Ids, Mask
from dise_core.errors import PluginError, shown
from dise_core.interfaces import LengthController, Scorer, Selector, Strategy, UnmaskingPolicy
from dise_core.outputs import Evaluation, Generation, Score
from dise_core.sequence import TokenSequence


class CheckedSelector(Selector):
    """Selects what another selector does, and raises PluginError for a bad mask."""

    inner: SerializeAsAny[Selector]

    def select(self, sequence: TokenSequence) -> Mask:
        """Return M, bool [N]."""
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
    if not isinstance(score, Score):
        raise _broken("scorer", scorer, "a Score", _described(score))
    if not isinstance(score.value, int | float) or not score.value < math.inf:
        raise _broken("scorer", scorer, "a value that is a finite number, or -inf", score.value)
    positions = score.positions
    if not isinstance(positions, np.ndarray) or positions.dtype.kind not in "iu":
        raise _broken("scorer", scorer, "positions, int64", _described(positions))
    return score


def checked_generation(
    controller: LengthController, generation: object, prompt: Ids, mask_id: int | None
) -> Generation:
    """Return a response and its evaluation."""
    if not (
        isinstance(generation, Generation)
        and isinstance(generation.sequence, TokenSequence)
        and isinstance(generation.evaluation, Evaluation)
    ):
        raise _broken("length controller", controller, "a Generation", _described(generation))
    text = generation.sequence
    if not np.array_equal(text.prompt, prompt):
        raise _broken("length controller", controller, "a text that begins with the prompt", "")
    if (text.ids == mask_id).any():
        raise _broken("length controller", controller, "a text without masks", "one with a mask")
    return generation


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
