"""The scorers that an experiment compares, each named by a specification."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from dise_app.files.texts import settings
from dise_core import Confidence, Plan, Score, Scorer, Selector, TokenSequence, gather
from dise_core.errors import InputError
from dise_core.front.planner import Planner
from dise_core.models.prompts import Translation
from dise_core.plans.cost import count_nfe
from dise_core.plugins.catalog import Catalog
from dise_core.plugins.kinds import SCORER
from dise_core.records import Fields, json_number
from dise_core.scoring.sequence_scorer import SequenceScorer
from dise_eval.experiments.records import ScoreRecord

OF_SELECTOR = "selector."
"""What the settings of a specification's selector begin with."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A scorer and a selector with their settings. label: the specification."""

    label: str
    scorer: Scorer
    selector: Selector
    selector_settings: Fields = field(default_factory=dict)

    def score(
        self, text: TokenSequence, translation: Translation | None = None, end_id: int | None = None
    ) -> Plan[tuple[Score, int]]:
        """Return a plan of the text's score and the NFE that it would cost alone.

        translation: how the judge reads the text, for a scorer that asks the judge.
        end_id: see SequenceScorer.
        """
        name = self.label.partition(":")[0]
        bound = SequenceScorer(self.scorer, self.selector, None, translation, name, end_id=end_id)
        return count_nfe(bound.score(text))


@dataclass(frozen=True, slots=True)
class Contenders:
    """All scorers of an experiment. usual: those that it has where nobody names any."""

    members: tuple[Contender, ...]
    usual: tuple[str, ...] = ()

    @classmethod
    def of(cls, specifications: Sequence[str], catalog: Catalog) -> Contenders:
        """Return the scorers of specifications SCORER[:SELECTOR[:SETTING=VALUE,...]],
        such as "dise:last-10" or "mc:response:num_samples=32". A setting of the selector
        is written selector.SETTING=VALUE.

        Without a selector the scorer's default is used. Raises InputError for unknown
        names, bad settings and duplicates.
        """
        if len(set(specifications)) < len(specifications):
            raise InputError(f"a scorer is named twice: {', '.join(specifications)}", "score")
        return cls(tuple(_contender(text, catalog) for text in specifications))

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(contender.label for contender in self.members)

    @property
    def recorded(self) -> tuple[Confidence, ...]:
        """The confidences that some scorer reads of how a text was written."""
        return tuple({kind for contender in self.members for kind in contender.scorer.recorded})

    def check(self, planner: Planner) -> None:
        for contender in self.members:
            planner.check_scorer(contender.label, contender.scorer)

    def score(
        self, text: TokenSequence, translation: Translation | None = None, end_id: int | None = None
    ) -> Plan[dict[str, ScoreRecord]]:
        """Return a plan of the scores by label, as JSON. Scorers that read the same text
        share its forward pass.
        """
        plans = (contender.score(text, translation, end_id) for contender in self.members)
        results = yield from gather(*plans)
        return {
            contender.label: _scored(score, nfe)
            for contender, (score, nfe) in zip(self.members, results, strict=True)
        }


def names_in(text: str, catalog: Catalog) -> tuple[str, str, str]:
    """Return the scorer, the selector, "" for none, and the settings of a specification.
    Either name may be PLUGIN:NAME.
    """
    parts = re.split(r":(?=[\w.-]+=|$)", text, maxsplit=1)
    name, _, selector = parts[0].partition(":")
    first, _, others = selector.partition(":")
    if catalog.has(SCORER, f"{name}:{first}"):
        name, selector = f"{name}:{first}", others
    return name, selector, "".join(parts[1:])


def _contender(text: str, catalog: Catalog) -> Contender:
    name, selector_name, pairs = names_in(text, catalog)
    words = [*filter(None, re.split(r",(?=[\w.-]+=)", pairs))]
    of_selector = [word for word in words if word.startswith(OF_SELECTOR)]
    try:
        its_settings = settings(word for word in words if word not in of_selector)
        more = settings(word.removeprefix(OF_SELECTOR) for word in of_selector)
    except InputError as error:
        raise InputError(
            f"a scorer is written SCORER:SELECTOR:KEY=VALUE,..., not {text!r}: {error}", "score"
        ) from error
    scorer = catalog.scorer(name, its_settings)
    selector = catalog.selector(selector_name or scorer.default_selector, more)
    return Contender(text, scorer, selector, more)


def _scored(score: Score, nfe: int) -> ScoreRecord:
    rank_value = json_number(score.rank_value)
    return cast("ScoreRecord", score.to_dict() | {"rank_value": rank_value, "nfe": nfe})
