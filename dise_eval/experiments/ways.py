"""One answer to each question in each of several ways, which a file names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import ClassVar

from dise_core import LLM, Plan
from dise_core.errors import InputError, TooLongError
from dise_core.plans.outcome import Outcome
from dise_core.scoring.calibration import fingerprint
from dise_eval.datasets.dataset import Problem
from dise_eval.experiments.experiments import Experiment, what_fits
from dise_eval.experiments.records import WayRecord
from dise_eval.experiments.usual import FIXED, params_with
from dise_eval.experiments.waysfile import Way
from dise_eval.graders import Mode


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
        facts = way.params.model_dump(mode="json")
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
