"""A run by a recipe, which tells how long it takes once it has seen some of it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import ClassVar

from dise_core.plans.outcome import Outcome
from dise_core.plans.plan import Plan, answer_by
from dise_core.plans.reading import Read, Reading
from dise_core.plugins.kinds import UNMASKING
from dise_eval.experiments.records import WayRecord
from dise_eval.experiments.ways import Compared, Trial
from dise_eval.recipes.recipe import Recipe

SECONDS, SHARE = 60.0, 0.5
"""The estimate is by so much of a run: by what comes first."""


@dataclass(frozen=True)
class Followed(Compared):
    """One answer to each question. deviations: in what the run is not the recipe's.
    began: when all of it, loading included, by time.monotonic.
    """

    recipe: Recipe = field(kw_only=True)
    deviations: tuple[str, ...] = ()
    began: float = field(default_factory=time.monotonic)

    kind: ClassVar[str] = "recipe"

    @property
    def settings(self) -> dict[str, object]:
        """Its way, and the deviations, some of which are the engine's."""
        return {**super().settings, "deviations": list(self.deviations)}

    @property
    def usual_settings(self) -> dict[str, object]:
        params = self.recipe.params({}).model_dump(mode="json")
        return {self.ways[0].name: params, "deviations": []}

    def outcomes(self, items: Iterable[Trial]) -> Iterator[Outcome[WayRecord]]:
        trials, params = list(items), self.ways[0].params
        rate = self.llm.catalog.required(UNMASKING, params).rate_of(params)
        clock = Clock(len(trials), -(-params.max_tokens // rate) + 1, self.began)
        return self.llm.engine.run(clock.timed(self.plan(trial)) for trial in trials)


class Clock:
    """Counts the turns of plans, a pass of its text each, and tells once by them how long
    all takes since it began. expected: a plan's turns, as long as none has ended.
    """

    def __init__(self, num_plans: int, expected: int, began: float) -> None:
        self._num_plans, self._expected, self._began = num_plans, expected, began
        self._num_turns, self._ended = 0, list[int]()
        self._started, self._is_told = time.monotonic(), False

    def timed(self, plan: Plan[WayRecord]) -> Plan[WayRecord]:
        num_turns = 0

        def answer(reads: Sequence[Read]) -> Plan[Sequence[Reading]]:
            nonlocal num_turns
            readings = yield reads
            num_turns += 1
            self._count()
            return readings

        record = yield from answer_by(plan, answer)
        self._ended.append(num_turns)
        return record

    def _count(self) -> None:
        self._num_turns += 1
        if self._is_told:
            return
        seconds, ended = time.monotonic() - self._started, self._ended
        expected = sum(ended) / len(ended) if ended else self._expected
        share = min(1, self._num_turns / (expected * self._num_plans))
        if seconds >= SECONDS or share >= SHARE:
            self._is_told = True
            whole = timedelta(0, round(self._started - self._began + seconds / share))
            text = f"about {whole} in all, by {share:.0%} of {self._num_plans} questions"
            print(f"dise: {text}", file=sys.stderr)
