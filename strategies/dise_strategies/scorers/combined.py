"""One score of several: the log-odds of being right, as `dise calibrate` fits them."""

from dataclasses import replace
from typing import ClassVar, Self

import numpy as np
from pydantic import (
    Field,
    FiniteFloat,
    JsonValue,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from dise_core import (
    Confidence,
    Plan,
    Score,
    Scorer,
    Selector,
    SequenceScorer,
    TokenSequence,
    gather,
)
from dise_core.errors import InputError
from dise_core.plugins.catalog import Catalog, catalog_of
from dise_core.scoring.checks import check_weights
from dise_core.scoring.score import Summand
from dise_core.scoring.sequence_scorer import Before
from dise_core.scoring.strategy import Strategy

Strategies = tuple[Scorer, Selector]


class ScorePart(Strategy):
    """A scorer, its selector (by default its own), their settings, and its weight."""

    scorer: str
    selector: str | None = None
    scorer_settings: dict[str, JsonValue] = Field(default_factory=dict)
    selector_settings: dict[str, JsonValue] = Field(default_factory=dict)
    weight: float = Field(default=1.0, ge=-1e9, le=1e9)

    def strategies(self, catalog: Catalog) -> Strategies:
        """Return scorer and selector. Raises InputError for what cannot be a part."""
        if self.scorer == "combined":
            raise InputError("scorer 'combined' cannot be a part of itself")
        scorer = catalog.scorer(self.scorer, self.scorer_settings)
        if scorer.asks == "judge":
            raise InputError(f"scorer {self.scorer!r} asks the judge, and no part may")
        name = self.selector or scorer.default_selector
        selector = catalog.selector(name, self.selector_settings)
        check_weights(self.scorer, scorer, selector)
        return scorer, selector


class Combined(Scorer):
    """The intercept plus the weighted sum of other scores, each with its own selector;
    -inf where one of them is. With the weights of `dise calibrate` that is the log-odds
    of being right. Parts that read the same text share a pass. Training: what its parts
    need.
    """

    is_among_allowed: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = True  # its parts have selectors of their own

    parts: tuple[ScorePart, ...] = Field((ScorePart(scorer="dise"),), min_length=1, max_length=16)
    """The scores, each {scorer, selector, scorer_settings, selector_settings, weight}."""
    intercept: FiniteFloat = 0.0
    """What is added to their weighted sum."""

    _strategies: tuple[Strategies, ...] = PrivateAttr()

    @field_validator("parts")
    @classmethod
    def _are_known(
        cls, parts: tuple[ScorePart, ...], info: ValidationInfo
    ) -> tuple[ScorePart, ...]:
        for part in parts:
            part.strategies(catalog_of(info))
        return parts

    @model_validator(mode="after")
    def _bind(self, info: ValidationInfo) -> Self:
        self._strategies = tuple(part.strategies(catalog_of(info)) for part in self.parts)
        return self

    @property
    def needs_writing(self) -> bool:  # type: ignore[override]
        return any(scorer.needs_writing for scorer, _ in self._strategies)

    @property
    def needs_masks(self) -> bool:  # type: ignore[override]
        return any(scorer.needs_masks for scorer, _ in self._strategies)

    @property
    def recorded(self) -> tuple[Confidence, ...]:
        return tuple(kind for scorer, _ in self._strategies for kind in scorer.recorded)

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        positions, end_id = np.flatnonzero(selector.select(sequence)), None
        if isinstance(selector, Before) and selector.length < len(sequence):
            end_id = int(sequence.ids[-1])
            sequence = replace(sequence, ids=sequence.ids[: selector.length])
        pairs = zip(self.parts, self._strategies, strict=True)
        parts = (SequenceScorer(*pair, None, name=p.scorer, end_id=end_id) for p, pair in pairs)
        scores = yield from gather(*(part.score(sequence) for part in parts))
        values = np.array([score.value for score in scores])
        if len(positions) == 0 or not np.isfinite(values).all():
            return Score.of_nothing()
        value = self.intercept + float(values @ [part.weight for part in self.parts])
        summands = [Summand("the intercept", 1.0, self.intercept)]
        for part, (scorer, _), score in zip(self.parts, self._strategies, scores, strict=True):
            name = f"{part.scorer}, {part.selector or scorer.default_selector}"
            summands.append(Summand(name, part.weight, score.value))
        return Score(value, positions, summands=tuple(summands))
