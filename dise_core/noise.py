"""Random numbers that depend on what is asked, never on who else asks: a counter-based
generator.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, replace

import numpy as np

from dise_core.arrays import Floats, Ids


@dataclass(frozen=True, slots=True)
class Noise:
    """Uniform numbers in [0, 1), one for each (seed, stream, step, position).

    `stream` tells samples and prompts apart; `step` counts the denoising steps of one request. Two
    requests with the same four numbers draw the same, whatever else runs beside them.
    """

    seed: int
    stream: int = 0
    step: int = 0

    @classmethod
    def for_request(cls, seed: int, prompt: Ids, sample: int) -> Noise:
        """Return the noise of the `sample`-th answer to a prompt: other prompts and samples draw
        independently.
        """
        digest = hashlib.blake2b(
            np.ascontiguousarray(prompt).tobytes() + sample.to_bytes(8, "little"), digest_size=8
        )
        return cls(seed, int.from_bytes(digest.digest(), "little"))

    def at_step(self, step: int) -> Noise:
        """Return the noise of another step of the same request."""
        return replace(self, step=step)

    def uniforms(self, positions: Ids, purpose: int = 0) -> Floats:
        """Return u in [0, 1), float64 [M], for positions int64 [M]; each purpose draws
        independently.
        """
        if len(positions) == 0:
            return np.zeros(0)
        return self.generator(purpose).random(int(positions.max()) + 1)[positions]

    def generator(self, purpose: int = 0) -> np.random.Generator:
        """Return a new generator that starts at (seed, stream, step); each purpose draws
        independently.
        """
        key = np.array([self.seed, self.stream], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=key, counter=[0, self.step, purpose, 0]))


def drawn_seed() -> int:
    """Return a new seed of 32 bits: short enough to type, and exact in the JSON of any language."""
    return secrets.randbits(32)
