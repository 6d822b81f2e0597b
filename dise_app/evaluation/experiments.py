"""The paper's experiments as plans: one record an item, whatever runs beside it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dise_app.evaluation.graders import Mode
from dise_app.evaluation.journal import Record
from dise_app.evaluation.questions import Question, Questions
from dise_app.evaluation.scoring import Contenders
from dise_core import LLM, Plan, SamplingParams, ScoringParams, gather
from dise_core.outputs import CompletionOutput


@dataclass(frozen=True)
class Experiment(ABC):
    """What is asked of every question."""

    llm: LLM
    questions: Questions

    kind = "experiment"
    is_timed = False
    """True where the records hold the seconds that their plans took, which no two runs have in common."""

    @property
    def items(self) -> Sequence[Any]:
        """What there is one record of, each with its `id`: the questions."""
        return self.questions.items

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What the records depend on beside the model and the data, as JSON."""

    @abstractmethod
    def plan(self, item: Any) -> Plan[Record]:
        """Return a plan of the record of one item."""


@dataclass(frozen=True)
class Sampled(Experiment):
    """Several answers to each question, graded, each scored by every contender; and one greedy answer."""

    contenders: Contenders
    params: SamplingParams
    mode: Mode

    kind = "sampled"

    @property
    def settings(self) -> dict[str, Any]:
        """The sampling, the scorers and the grader."""
        return {"params": self.params.model_dump(mode="json"), "scorers": list(self.contenders.labels), "grader": self.mode}

    def plan(self, item: Question) -> Plan[Record]:
        """Return a plan of the record."""
        greedy = self.params.model_copy(update={"temperature": 0.0, "n": 1, "best_of": None})
        planner = self.llm.planner
        sampled, single = yield from gather(
            planner.generate(item.prompt, self.params), planner.generate(item.prompt, greedy)
        )
        outputs = sorted(sampled.outputs, key=lambda output: output.index)
        texts = planner.texts(item.prompt, [output.token_ids for output in outputs], self.params)
        scores = yield from gather(*(self.contenders.score(text) for text in texts))
        return {
            "id": item.id,
            "greedy": self._graded(item, single.outputs[0]),
            "answers": [
                {**self._graded(item, output), "token_ids": list(output.token_ids), "scores": its}
                for output, its in zip(outputs, scores, strict=True)
            ],
        }

    def _graded(self, question: Question, output: CompletionOutput) -> Record:
        verdict = self.questions.dataset.grader(question, self.mode).grade(output.text)
        return {
            "text": output.text,
            "is_correct": verdict.is_correct,
            "extracted": verdict.extracted,
            "reason": verdict.reason,
        }


@dataclass(frozen=True)
class Likelihood(Experiment):
    """Every candidate of each question, scored by every contender."""

    contenders: Contenders
    block_length: int = 32

    kind = "likelihood"

    @property
    def settings(self) -> dict[str, Any]:
        """The scorers."""
        return {"scorers": list(self.contenders.labels), "block_length": self.block_length}

    def plan(self, item: Question) -> Plan[Record]:
        """Return a plan of the record."""
        planner, params = self.llm.planner, ScoringParams(block_length=self.block_length)
        texts = planner.texts(item.prompt, item.candidates, params)
        scores = yield from gather(*(self.contenders.score(text) for text in texts))
        return {"id": item.id, "right": item.right, "candidates": scores}


@dataclass(frozen=True, slots=True)
class Trial:
    """One question put to one length controller."""

    variant: str
    question: Question

    @property
    def id(self) -> str:
        """Both names."""
        return f"{self.variant} | {self.question.id}"


@dataclass(frozen=True)
class Lengths(Experiment):
    """A greedy answer to each question by each length controller, one controller after the other: each has its time."""

    variants: Mapping[str, SamplingParams]
    mode: Mode

    kind = "length"
    is_timed = True

    @property
    def settings(self) -> dict[str, Any]:
        """The controllers and the grader."""
        return {name: params.model_dump(mode="json") for name, params in self.variants.items()} | {"grader": self.mode}

    @property
    def items(self) -> Sequence[Trial]:
        """Every question by every controller."""
        return [Trial(variant, question) for variant in self.variants for question in self.questions.items]

    def plan(self, item: Trial) -> Plan[Record]:
        """Return a plan of the record."""
        answer = yield from self.llm.planner.generate(item.question.prompt, self.variants[item.variant])
        output = answer.outputs[0]
        verdict = self.questions.dataset.grader(item.question, self.mode).grade(output.text)
        return {
            "id": item.id,
            "variant": item.variant,
            "text": output.text,
            "is_correct": verdict.is_correct,
            "nfe": answer.usage.nfe,
            "num_tokens": len(output.token_ids),
            "stopped_by": output.stopped_by,
        }
