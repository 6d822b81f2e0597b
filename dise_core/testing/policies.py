"""The conformance check of unmasking policies."""

from __future__ import annotations

import numpy as np

from dise_core.denoise import Denoiser
from dise_core.interfaces import Drafts, UnmaskingPolicy, UnmaskingStep
from dise_core.noise import Noise
from dise_core.params import SamplingParams
from dise_core.reading import drive
from dise_core.testing.promises import expect
from dise_core.testing.toy_model import SPECIAL, ToyPredictor


def check_unmasking_policy(policy: UnmaskingPolicy) -> None:
    """Check that the policy chooses distinct indices, within the quota if it uses one, that it
    edits none but the drafts that it gets, and that denoising with it fills every mask.
    """
    random = np.random.default_rng(0)
    for num_masked in (1, 2, 7):
        for quota in range(1, num_masked + 1):
            confidences = random.random(num_masked)
            step = UnmaskingStep(
                np.arange(num_masked) * 2, confidences, quota, quota / num_masked, Noise(quota)
            )
            chosen = policy.choose(step)
            expect(
                np.issubdtype(chosen.dtype, np.integer),
                f"choose must return integers, not {chosen!r}",
            )
            expect(
                len(set(chosen.tolist())) == len(chosen), f"each index at most once, not {chosen!r}"
            )
            expect(
                all(0 <= index < num_masked for index in chosen),
                f"indices must be below {num_masked}: {chosen!r}",
            )
            if policy.uses_quota:
                expect(
                    1 <= len(chosen) <= quota,
                    f"a policy that uses the quota commits 1..{quota}, not {len(chosen)}",
                )
            expect(
                np.array_equal(confidences, step.confidences),
                "choose must leave the step unchanged",
            )
    for num_drafts in (0, 1, 5) if policy.edits else ():
        _check_edits(policy, num_drafts, random)
    toy = ToyPredictor()
    for settings in ({"tokens_per_step": 2}, {"steps": 4}, {"steps": 4, "eps": 1e-3}):
        params = SamplingParams(max_tokens=9, block_length=5).model_copy(update=settings)
        text = drive(
            Denoiser(toy.info, policy, Noise(0), params).write(np.array([1, 2]), 9), toy.read
        )
        expect(not (text.ids == SPECIAL.mask_id).any(), "denoising must fill every mask")


def _check_edits(policy: UnmaskingPolicy, num_drafts: int, random: np.random.Generator) -> None:
    positions, nothing = np.arange(num_drafts), np.zeros(0, np.int64)
    drafts = Drafts(positions, positions, positions[::-1].copy(), random.random(num_drafts))
    edited = policy.edit(UnmaskingStep(nothing, np.zeros(0), 0, 1.0, Noise(0), 0, drafts))
    expect(
        np.issubdtype(edited.dtype, np.integer)
        and len(set(edited.tolist())) == len(edited)
        and all(0 <= index < num_drafts for index in edited),
        f"edit must return distinct indices below {num_drafts}, not {edited!r}",
    )
    expect(policy.num_post_steps >= 0, f"num_post_steps is {policy.num_post_steps}")
