"""One score of several: the log-odds of being right, as `dise calibrate` fits them."""

from dataclasses import replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from pydantic import Field, FiniteFloat, JsonValue, field_validator

from dise_core import Plan, Score, Scorer, Selector, SequenceScorer, TokenSequence, gather
from dise_core.errors import InputError
from dise_core.plugins.discovery import installed_catalog
from dise_core.scoring.scorer import Recorded
from dise_core.scoring.sequence_scorer import Before
from dise_core.scoring.strategy import Strategy


class ScorePart(Strategy):
    """A scorer with its settings and selector, by default its own, and the weight of its value."""

    scorer: str
    selector: str | None = None
    scorer_settings: dict[str, JsonValue] = Field(default_factory=dict)
    weight: float = Field(default=1.0, ge=-1e9, le=1e9)

    @cached_property
    def bound(self) -> SequenceScorer:
        """The scorer of texts. Raises InputError for what cannot be a part."""
        if self.scorer == "combined":
            raise InputError("scorer 'combined' cannot be a part of itself")
        catalog = installed_catalog()
        scorer = catalog.scorer(self.scorer, self.scorer_settings)
        if scorer.asks == "judge":
            raise InputError(f"scorer {self.scorer!r} asks the judge, and no part may")
        selector = catalog.selector(self.selector or scorer.default_selector)
        return SequenceScorer(scorer, selector, None, name=self.scorer)


class Combined(Scorer):
    """The intercept plus the weighted sum of other scores, each with its own selector; -inf where
    one of them is. With the weights of `dise calibrate` that is the log-odds of being right. Parts
    that read the same text share a pass. Training: what its parts need.
    """

    is_among_allowed: ClassVar[bool] = False

    parts: tuple[ScorePart, ...] = Field((ScorePart(scorer="dise"),), min_length=1, max_length=16)
    """The scores, each {scorer, selector, scorer_settings, weight}."""
    intercept: FiniteFloat = 0.0
    """What is added to their weighted sum."""

    @field_validator("parts")
    @classmethod
    def _are_known(cls, parts: tuple[ScorePart, ...]) -> tuple[ScorePart, ...]:
        for part in parts:
            _ = part.bound
        return parts

    @property
    def needs_writing(self) -> bool:  # type: ignore[override]
        return any(part.bound.scorer.needs_writing for part in self.parts)

    @property
    def recorded(self) -> tuple[Recorded, ...]:
        return tuple(kind for part in self.parts for kind in part.bound.scorer.recorded)

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        positions, end_id = np.flatnonzero(selector.select(sequence)), None
        if isinstance(selector, Before) and selector.length < len(sequence):
            end_id = int(sequence.ids[-1])
            sequence = replace(sequence, ids=sequence.ids[: selector.length])
        parts = (replace(part.bound, end_id=end_id) for part in self.parts)
        scores = yield from gather(*(part.score(sequence) for part in parts))
        values = np.array([score.value for score in scores])
        if len(positions) == 0 or not np.isfinite(values).all():
            return Score.of_nothing()
        return Score(self.intercept + float(values @ [p.weight for p in self.parts]), positions)
