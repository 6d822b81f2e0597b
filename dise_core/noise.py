"""Random numbers by request, step and position, whatever the batch."""

import hashlib
import secrets
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from dise_core.arrays import Floats, Ids


@dataclass(frozen=True, slots=True)
class Noise:
    """Uniform numbers in [0, 1), one for each (seed, stream, step, position).

    `stream` differs between samples and prompts; `step` counts the denoising steps of one
    request. The same four numbers always draw the same, whatever else runs beside them.
    """

    seed: int
    stream: int = 0
    step: int = 0

    @classmethod
    def for_request(cls, seed: int, prompt: Ids, sample: int) -> Self:
        """Return the noise of one sample for a prompt, independent of all others."""
        key = np.ascontiguousarray(prompt).tobytes() + sample.to_bytes(8, "little")
        digest = hashlib.blake2b(key, digest_size=8)
        return cls(seed, int.from_bytes(digest.digest(), "little"))

    def for_revision(self) -> Self:
        """Return the noise of revising the sample, independent of writing it."""
        return replace(self, stream=self.stream ^ 2**63, step=0)

    def at_step(self, step: int) -> Self:
        """Return the noise of another step of the same request."""
        return replace(self, step=step)

    def uniforms(self, positions: Ids, purpose: int = 0) -> Floats:
        """Return float64 [M] in [0, 1) for positions [M]; purposes are independent."""
        # Draw from position 0 on: a position's number must not depend on which others are
        # asked.
        return self.generator(purpose).random(int(positions.max(initial=-1)) + 1)[positions]

    def generator(self, purpose: int = 0) -> np.random.Generator:
        """Return a generator of (seed, stream, step); purposes are independent."""
        # Philox counts and carries no state: what it draws is a function of key and counter, so
        # step 900 is as near as step 0, and nothing depends on who drew before. Drawing counts
        # up the first word: 2**64 of its blocks lie between two steps.
        key = np.array([self.seed, self.stream], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=key, counter=[0, self.step, purpose, 0]))


def drawn_seed() -> int:
    """Return a random 32-bit seed: short to type, exact in any language's JSON."""
    return secrets.randbits(32)
