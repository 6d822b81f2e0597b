"""Denoising: the schedule, and what is never written. Token for token, with every policy, guidance
and in blocks: tests/adapters/test_writing.py and test_llada.py.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from dise_core import (
    Candidates,
    InputError,
    Plan,
    SamplingParams,
    UnmaskingPolicy,
    UnmaskingStep,
    drive,
)
from dise_core.arrays import Ids
from dise_core.errors import PlanError, PluginError
from dise_core.noise import Noise
from dise_core.plans.reading import Read, Reading
from dise_core.sequence import SpecialTokens
from dise_core.testing.toy_model import MASK, ToyPredictor
from dise_core.writing.denoise import Denoiser
from dise_strategies.unmasking.ranked import LowConfidence

PROMPT = np.array([1, 2, 3])


def denoiser(**settings: object) -> Denoiser:
    """Return a denoiser of the toy model; other settings than its own fields are params."""
    own = {"info": ToyPredictor().info, "policy": LowConfidence(), "noise": Noise(0)}
    own |= {name: settings.pop(name) for name in list(settings) if name in own}
    params = SamplingParams(**({"max_tokens": 10} | settings))  # type: ignore[arg-type]
    return Denoiser(**own, params=params)  # type: ignore[arg-type]


def reads_of(plan: Plan[object]) -> list[Read]:
    """Return what is asked, one Read at each step."""
    asked: list[Read] = []
    predictor = ToyPredictor()

    def read(reads: Sequence[Read]) -> list[Reading]:
        asked.extend(reads)
        return predictor.read(reads)

    drive(plan, read)
    return asked


def masks_per_step(plan: Plan[object]) -> list[int]:
    """Return how many masks stand in the whole text at each step."""
    return [int((read.token_ids == MASK).sum()) for read in reads_of(plan)]


@pytest.mark.parametrize(
    ("settings", "num_tokens", "expected"),
    [
        ({"tokens_per_step": 2, "block_length": 4}, 10, [10, 8, 6, 4, 2]),
        ({"tokens_per_step": 3, "block_length": 4}, 10, [10, 7, 6, 3, 2]),
        ({"tokens_per_step": 99, "block_length": 4}, 10, [10, 6, 2]),
        ({"steps": 6, "block_length": 5}, 10, [10, 8, 6, 5, 3, 1]),
        ({"steps": 5, "block_length": 5}, 10, [10, 8, 6, 5, 2]),
        ({"steps": 100, "block_length": 5}, 3, [3, 2, 1]),
        (
            {"steps": 8, "block_length": 8, "max_tokens": 8, "policy": LowConfidence(eps=1e-3)},
            8,
            [8, 7, 6, 5, 4, 3, 2],
        ),
    ],
)
def test_the_schedule_commits_what_it_says(
    settings: dict[str, object], num_tokens: int, expected: list[int]
) -> None:
    """Steps take floor(n / steps) tokens, the first remainder steps one more, as in LLaDA's
    get_num_transfer_tokens. With eps a step that commits nothing costs no pass: the first share of
    8 masks in 8 steps is 1 - (1 - 0.999 / 8), just under one token.
    """
    assert masks_per_step(denoiser(**settings).write(PROMPT, num_tokens)) == expected


def test_only_masks_from_the_start_on_are_filled_and_the_canvas_stays() -> None:
    canvas = np.array([1, MASK, 2, MASK, 5, MASK, MASK])
    before = canvas.copy()
    writer = denoiser(block_length=2)
    filled = drive(writer.denoise(writer.text(canvas, 1), start=3), ToyPredictor().read).ids
    assert canvas.tolist() == before.tolist()
    assert filled[[0, 1, 2, 4]].tolist() == [1, MASK, 2, 5]
    assert MASK not in filled[3:]


def test_only_allowed_ids_are_written_and_a_bias_is_followed() -> None:
    def written(seed: int, **settings: object) -> Ids:
        drawn = {"temperature": 2.0, "noise": Noise(seed), **settings}
        return drive(denoiser(**drawn).write(PROMPT, 20), ToyPredictor().read).response

    for seed in range(10):
        assert np.isin(written(seed, allowed_token_ids=(2, 5, MASK)), [2, 5]).all()
        assert (written(seed, logit_bias={5: 100}) == 5).all()
        assert (written(seed, logit_bias={5: 0}) == written(seed)).all()
        assert not np.isin(written(seed, forbidden_token_ids=(0, 4, 10)), [MASK, 0, 4, 10]).any()
        avoided = written(seed, logit_bias={"0": -100, "4": -100.0})
        assert (avoided == written(seed, forbidden_token_ids=(0, 4))).all()


def test_the_readout_carries_the_sampling_settings_and_what_may_be_written() -> None:
    drawn = {"temperature": 0.7, "top_p": 0.9, "top_k": 5, "forbidden_token_ids": (3,)}
    [read] = next(denoiser(**drawn).write(PROMPT, 4))
    assert read.readout == Candidates(0.7, 0.9, 5, Noise(0), "probability", (MASK, 3))
    [read] = next(denoiser(allowed_token_ids=(3, 4), logit_bias={10: 2, 3: -1}).write(PROMPT, 4))
    choice = {"allowed": (3, 4), "bias": ((3, -1.0), (10, 2.0))}
    assert read.readout == Candidates(noise=Noise(0), forbidden=(MASK,), **choice)


class Idle(UnmaskingPolicy):
    """Commits nothing."""

    def choose(self, step: UnmaskingStep) -> Ids:
        return np.zeros(0, np.int64)


class OneAtATime(UnmaskingPolicy):
    """Commits one token whatever the quota."""

    def choose(self, step: UnmaskingStep) -> Ids:
        return np.zeros(1, np.int64)


class NeverSure(Idle):
    """Decides by itself, and never for anything."""

    uses_quota: ClassVar[bool] = False


@pytest.mark.parametrize("policy", [Idle(), NeverSure()])
def test_a_policy_that_commits_nothing_for_too_long_is_refused(policy: UnmaskingPolicy) -> None:
    with pytest.raises(PlanError, match="chose no token, so denoising would never end"):
        drive(denoiser(policy=policy).write(PROMPT, 4), ToyPredictor().read)


def test_a_policy_may_commit_fewer_than_its_quota() -> None:
    plan = denoiser(policy=OneAtATime(), steps=2).write(PROMPT, 5)
    assert masks_per_step(plan) == [5, 4, 3, 2, 1]


class Editor(LowConfidence):
    """Edits what it is told to, as long as it may."""

    edits: ClassVar[bool] = True

    index: int
    post_steps: int = 3

    @property
    def num_post_steps(self) -> int:
        return self.post_steps

    def edit(self, step: UnmaskingStep) -> Ids:
        assert step.drafts is not None
        assert not (step.drafts.token_ids == MASK).any()
        return np.array([self.index] if len(step.drafts.positions) else [], np.int64)


def test_an_edit_of_what_is_not_committed_names_its_policy() -> None:
    with pytest.raises(PluginError, match=r"Editor .* must return distinct indices in 0\.\.1"):
        drive(denoiser(policy=Editor(index=2)).write(PROMPT, 4), ToyPredictor().read)


@pytest.mark.parametrize("post_steps", [0, 1, 3])
def test_an_editor_gets_at_most_its_steps_after_the_last_mask(post_steps: int) -> None:
    """An edit that writes what stands there changes nothing, and so ends the block."""
    policy = Editor(index=0, post_steps=post_steps)
    passes = masks_per_step(denoiser(policy=policy, block_length=4).write(PROMPT, 8))
    assert [count for i, count in enumerate(passes) if count not in passes[:i]][:4] == [8, 6, 4, 2]
    assert passes.count(4) <= 1 + post_steps
    assert passes.count(0) <= post_steps


def test_the_tail_of_a_text_is_written_at_the_rate_of_the_whole() -> None:
    """10 tokens in 4 steps are 3 a step, whatever is denoised."""
    canvas = np.concatenate([PROMPT, np.full(7, MASK)])
    writer = denoiser(steps=4, block_length=10)
    assert masks_per_step(writer.denoise(writer.text(canvas, 3), 3)) == [7, 4, 1]


def test_a_model_without_a_mask_token_cannot_denoise() -> None:
    info = replace(ToyPredictor().info, special=SpecialTokens(None, frozenset()))
    with pytest.raises(InputError, match="has no mask token"):
        drive(denoiser(info=info).write(PROMPT, 4), ToyPredictor().read)
