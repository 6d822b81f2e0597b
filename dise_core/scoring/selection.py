"""The union of selectors, written A+B."""

from __future__ import annotations

from functools import reduce

from pydantic import SerializeAsAny

from dise_core.arrays import Mask
from dise_core.scoring.scorer import Selector
from dise_core.sequence import TokenSequence


class Union(Selector):
    """Selects every position that one of its parts selects."""

    parts: tuple[SerializeAsAny[Selector], ...]

    def select(self, sequence: TokenSequence) -> Mask:
        return reduce(
            lambda union, part: union | part.select(sequence), self.parts, sequence.mask_of([])
        )
