"""One answer to each question by each of several ways: length controllers, or revisers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from dise_core import Plan, RequestOutput, SamplingParams
from dise_eval.datasets.dataset import Problem
from dise_eval.experiments.experiments import Experiment, what_fits
from dise_eval.experiments.records import VariantRecord
from dise_eval.graders import Mode

AS_WRITTEN = "as written"
"""The way without a reviser, one answer a question, of the length asked for."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to write an answer; its text names it in journals and reports.

    reviser: its name with its threshold, "" without one. rate: tokens a step, None where there is
    one for all. beside: the variant that it is compared with: the same answers without the
    reviser, or the longest fixed length.
    """

    way: str
    params: SamplingParams
    reviser: str = ""
    rate: int | None = None
    beside: Variant | None = None

    def __str__(self) -> str:
        way = "" if self.reviser and self.way == AS_WRITTEN else self.way
        name = " + ".join(filter(None, (way, self.reviser)))
        return name if self.rate is None else f"{name}, {self.rate} a step"


@dataclass(frozen=True, slots=True)
class Trial:
    """One question put to one variant."""

    variant: Variant
    question: Problem

    @property
    def id(self) -> str:
        return f"{self.variant} | {self.question.id}"


@dataclass(frozen=True)
class Variants(Experiment[VariantRecord]):
    """One answer to each question by each variant, one variant after the other."""

    variants: Sequence[Variant]
    mode: Mode

    @property
    def grader(self) -> str:
        return self.questions.grader(self.mode)

    @property
    def settings(self) -> dict[str, object]:
        return {str(variant): variant.params.model_dump(mode="json") for variant in self.variants}

    @property
    def items(self) -> Sequence[Trial]:
        return [
            Trial(variant, question)
            for variant in self.variants
            for question in self.questions.items
        ]

    def hardest(self) -> Sequence[Trial]:
        """Return the longest prompt by all variants, the others by that of the longest answer."""
        longest, *others = super().hardest()
        variants = sorted(self.variants, key=lambda variant: -variant.params.max_tokens)
        return [
            *(Trial(variant, longest) for variant in variants),
            *(Trial(variants[0], question) for question in others),
        ]

    def plan(self, item: Trial) -> Plan[VariantRecord]:
        answer = yield from self.llm.planner.generate(
            item.question.prompt, item.variant.params, self.questions.chat
        )
        return self.record(item, answer)

    def record(self, item: Trial, answer: RequestOutput) -> VariantRecord:
        output = answer.outputs[0]
        graded = self.questions.graded(item.question, output.text, self.mode)
        return {
            "id": item.id,
            "variant": str(item.variant),
            "text": output.text,
            "is_correct": graded["is_correct"],
            "nfe": answer.usage.nfe,
            "num_tokens": len(output.token_ids),
            "stopped_by": output.stopped_by,
        }


@dataclass(frozen=True)
class Lengths(Variants):
    """Length controllers, each with its own time. max_iterations: by how many tokens the variants'
    longest answers exceed the base length that the user named.
    """

    max_iterations: int = 0

    kind: ClassVar[str] = "length"
    is_timed: ClassVar[bool] = True

    def remedy(self, item: Trial) -> str:
        most = self.room(item.question) - self.max_iterations
        return what_fits("--base-length", most) + f" with --max-iterations {self.max_iterations}"


@dataclass(frozen=True)
class Revisions(Variants):
    """With and without a reviser, and what else might be done with the passes."""

    kind: ClassVar[str] = "revision"

    def remedy(self, item: Trial) -> str:
        return what_fits("--max-tokens", self.room(item.question))

    def record(self, item: Trial, answer: RequestOutput) -> VariantRecord:
        is_revised = any(revision.is_accepted for revision in answer.outputs[0].revisions)
        has_reviser = item.variant.params.reviser is not None
        return {**super().record(item, answer), "is_revised": is_revised if has_reviser else None}
