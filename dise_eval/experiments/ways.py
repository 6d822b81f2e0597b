"""One answer to each question in each of several ways, which a file names; or by a recipe,
which tells how long it takes once it has seen some of it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import groupby
from typing import ClassVar

from dise_core import LLM, Plan
from dise_core.errors import InputError, TooLongError
from dise_core.plans.outcome import Outcome
from dise_core.plans.plan import answer_by
from dise_core.plans.reading import Read, Reading
from dise_core.plugins.kinds import UNMASKING
from dise_core.scoring.calibration import fingerprint
from dise_eval.datasets.dataset import Problem
from dise_eval.experiments.experiments import Experiment, what_fits
from dise_eval.experiments.records import WayRecord
from dise_eval.experiments.usual import FIXED, params_with
from dise_eval.experiments.waysfile import Published, Way
from dise_eval.graders import Mode

SECONDS, SHARE = 60.0, 0.5
"""A recipe's time is estimated from so much of a run: by what comes first."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One question answered in one way."""

    way: Way
    question: Problem

    @property
    def id(self) -> str:
        return f"{self.way.name} | {self.question.id}"


@dataclass(frozen=True)
class Compared(Experiment[WayRecord]):
    """An answer to each question in each way, in turn. others: ways' own models."""

    ways: Sequence[Way]
    mode: Mode
    others: Mapping[str, LLM] = field(default_factory=dict)

    kind: ClassVar[str] = "compare"

    @property
    def grader(self) -> str:
        return self.questions.grader(self.mode)

    @property
    def settings(self) -> dict[str, object]:
        return {way.name: self._facts(way) for way in self.ways}

    @property
    def usual_settings(self) -> dict[str, object]:
        return {way.name: params_with(FIXED) for way in self.ways}

    def _facts(self, way: Way) -> dict[str, object]:
        facts = self.llm_of(way).planner.own(way.params).model_dump(mode="json")
        if way.model is None:
            return facts
        model = self.llm_of(way).predictor
        return {**facts, "model": model.info.name, "tokenizer": fingerprint(model)}

    def llm_of(self, way: Way) -> LLM:
        return self.llm if way.model is None else self.others[way.model]

    @property
    def items(self) -> Sequence[Trial]:
        return [Trial(way, question) for way in self.ways for question in self.questions.items]

    def hardest(self) -> Sequence[Trial]:
        """Return the longest prompt in all ways, the others in the way of most tokens."""
        longest, *shorter = super().hardest()
        ways = sorted(self.ways, key=lambda way: -way.params.max_tokens)
        return [
            *(Trial(way, longest) for way in ways),
            *(Trial(ways[0], question) for question in shorter),
        ]

    def begin(self, item: Trial) -> None:
        """Raise InputError, which names the way, for one that cannot be used."""
        try:
            super().begin(item)
        except TooLongError:
            raise
        except InputError as error:
            raise InputError(
                f"The way {item.way.name!r} cannot be used: {error}", error.parameter
            ) from error

    def remedy(self, item: Trial) -> str:
        return what_fits("max_tokens", self.room(item.question))

    def outcomes(self, items: Iterable[Trial]) -> Iterator[Outcome[WayRecord]]:
        """Yield the outcomes, one model after the other."""
        for model, trials in groupby(items, lambda trial: trial.way.model):
            llm = self.llm if model is None else self.others[model]
            yield from llm.engine.run(map(self.plan, trials))

    def plan(self, item: Trial) -> Plan[WayRecord]:
        answer = yield from self.llm_of(item.way).planner.generate(
            item.question.prompt, item.way.params, self.questions.chat
        )
        output = answer.outputs[0]
        graded = self.questions.graded(item.question, output.text, self.mode)
        is_revised = any(revision.is_accepted for revision in output.revisions)
        return {
            "id": item.id,
            "way": item.way.name,
            "text": output.text,
            "is_correct": graded["is_correct"],
            "nfe": answer.usage.nfe,
            "num_tokens": len(output.token_ids),
            "stopped_by": output.stopped_by,
            "is_revised": None if item.way.params.reviser is None else is_revised,
        }


@dataclass(frozen=True)
class Followed(Compared):
    """One answer to each question by a recipe, whose own way is the usual one. deviations: in
    what the run is not the recipe's. began: when all of it, loading included, by
    time.monotonic.
    """

    published: Published = field(kw_only=True)
    usual_way: Way = field(kw_only=True)
    deviations: tuple[str, ...] = ()
    began: float = field(default_factory=time.monotonic)

    kind: ClassVar[str] = "recipe"

    @property
    def settings(self) -> dict[str, object]:
        """Its way, and the deviations, some of which are the engine's."""
        return {**super().settings, "deviations": list(self.deviations)}

    @property
    def usual_settings(self) -> dict[str, object]:
        params = self.usual_way.params.model_dump(mode="json")
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
