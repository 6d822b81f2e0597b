"""What policies, length controllers and revisers of plugins return, checked."""

from collections.abc import Callable, Iterator

import numpy as np

from dise_core.arrays import Ids
from dise_core.models.info import ModelInfo
from dise_core.scoring.contract import broken, call, checked_score, described
from dise_core.scoring.score import Evaluation
from dise_core.scoring.strategy import Strategy
from dise_core.sequence import TokenSequence, are_within
from dise_core.writing.generation import Generation
from dise_core.writing.policy import Drafts, UnmaskingPolicy, UnmaskingStep
from dise_core.writing.revisions import Revision


def chosen(policy: UnmaskingPolicy, step: UnmaskingStep) -> Ids:
    """Return a policy's choice among a step's positions, int64 [<= M]."""
    return _indices(policy, policy.choose, step, len(step.positions))


def edited(policy: UnmaskingPolicy, step: UnmaskingStep, drafts: Drafts) -> Ids:
    """Return a policy's choice among a step's drafts, int64 [<= E]."""
    return _indices(policy, policy.edit, step, len(drafts.positions))


def _indices(
    policy: UnmaskingPolicy,
    method: Callable[[UnmaskingStep], object],
    step: UnmaskingStep,
    count: int,
) -> Ids:
    indices = call("unmasking policy", policy, method, step)
    array = np.asarray(indices)
    if array.size == 0:
        return np.zeros(0, np.int64)
    listed = array.tolist() if array.ndim == 1 and array.dtype.kind in "iu" else [-1]
    if not 0 <= min(listed) <= max(listed) < count or len(set(listed)) < len(listed):
        promise = f"distinct indices in 0..{count - 1}, int64" if count else "no index"
        raise broken("unmasking policy", policy, promise, described(indices))
    return array


def checked_generation(
    role: str, strategy: Strategy, generation: object, prompt: Ids, suffix: Ids, mask_id: int | None
) -> Generation:
    """Return a response and its evaluation. role: the strategy's, e.g. "reviser"."""
    if not (
        isinstance(generation, Generation)
        and isinstance(generation.sequence, TokenSequence)
        and isinstance(generation.evaluation, Evaluation)
    ):
        raise broken(role, strategy, "a Generation", described(generation))
    text = generation.sequence
    if not np.array_equal(text.prompt, prompt):
        raise broken(role, strategy, "a text that begins with the prompt", "")
    if not np.array_equal(text.suffix, suffix):
        raise broken(role, strategy, "a text that ends with what follows the gap", "")
    if (np.asarray(text.ids) == mask_id).any():
        raise broken(role, strategy, "a text without masks", "one with a mask")
    return generation


def checked_revision(
    reviser: Strategy, revised: object, before: TokenSequence, info: ModelInfo, max_tokens: int
) -> Generation:
    """Return a revised response of at most max_tokens, and its evaluation."""
    mask_id = info.special.mask_id
    ends = before.prompt, before.suffix
    generation = checked_generation("reviser", reviser, revised, *ends, mask_id)
    checked_score("reviser", reviser, generation.evaluation.score)
    for promise, is_kept, answer in _promises_of_revision(generation, before, info, max_tokens):
        if not is_kept:
            raise broken("reviser", reviser, promise, answer)
    return generation


def _promises_of_revision(
    generation: Generation, before: TokenSequence, info: ModelInfo, max_tokens: int
) -> Iterator[tuple[str, bool, str]]:
    text, rounds, evaluation = generation.sequence, generation.revisions, generation.evaluation
    ids, length = text.ids, len(text.response)
    is_flat = isinstance(ids, np.ndarray) and ids.dtype == np.int64 and ids.ndim == 1
    yield "token ids, int64 [N]", is_flat, described(ids)
    vocabulary = f"token ids in 0..{info.vocab_size - 1}"
    yield vocabulary, are_within(ids, info.vocab_size), described(ids)
    yield f"a response of at most {max_tokens} tokens", length <= max_tokens, f"one of {length}"
    is_whole = evaluation.tokens is None or np.shape(evaluation.tokens.logprobs) == (length,)
    yield f"a report on all {length} tokens", is_whole, ""
    scored = evaluation.score.positions
    yield f"positions in 0..{len(ids) - 1}", are_within(scored, len(ids)), described(scored)
    is_trace = isinstance(rounds, tuple) and all(isinstance(item, Revision) for item in rounds)
    yield "a tuple of Revisions", is_trace, described(rounds)
    is_traced = np.array_equal(ids, before.ids) or any(revision.is_accepted for revision in rounds)
    yield "an accepted Revision of a text that it changed", is_traced, "none"
