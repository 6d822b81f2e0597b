"""The paper's experiments as plans, one record per item, whatever else runs beside them."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dise_app.evaluation.graders import Mode
from dise_app.evaluation.questions import Question, Questions
from dise_app.evaluation.scoring import Contenders
from dise_core import LLM, Plan, SamplingParams, ScoringParams, gather
from dise_core.errors import InputError, TooLongError
from dise_core.fitting import fitted
from dise_core.outputs import CompletionOutput, RequestOutput
from dise_core.records import Record

SPECIAL = re.compile(r"<\|[a-z_]+\|>")
"""A special token, written out in a text."""


@dataclass(frozen=True)
class Experiment(ABC):
    """An experiment: a plan of one record for each item."""

    llm: LLM
    questions: Questions

    kind = "experiment"
    is_timed = False
    """Whether records hold the seconds that their plans took, which differ from run to run."""

    @property
    def items(self) -> Sequence[Any]:
        """The items, each with an `id`, that get one record each: the questions."""
        return self.questions.items

    @property
    def grader(self) -> str | None:
        """The grader's version, None if nothing is graded. Raises InputError for a data set whose
        answers are ranked, not graded.
        """
        return None

    @property
    @abstractmethod
    def settings(self) -> Record:
        """What the records depend on besides the model and the data, as JSON."""

    @abstractmethod
    def plan(self, item: Any) -> Plan[Record]:
        """Return a plan of the record of one item."""

    def check(self) -> None:
        """Raise the InputError of an item that cannot run, trying the longest prompt first, without
        a forward pass.

        Each plan runs up to its first reads; by then it has checked its request. Problems that only
        a finished text shows, such as its length in a judge's tokens, are not found here.
        """
        for item in self.hardest():
            plan = self.plan(item)
            try:
                next(plan, None)
            except TooLongError as error:
                raise TooLongError(
                    f"{item.id}: {error}. {self.remedy(item)}", error.parameter
                ) from error
            finally:
                plan.close()

    def hardest(self) -> Sequence[Any]:
        """Return items such that every item can run if these can, the longest prompt first."""
        return sorted(self.questions.items, key=lambda question: -self.prompt_lengths[question.id])

    @abstractmethod
    def remedy(self, item: Any) -> str:
        """Return a sentence on what to do if the item with the longest prompt is too long."""

    @cached_property
    def prompt_lengths(self) -> Mapping[str, int]:
        """The number of tokens in each question's prompt as the model reads it, by question id."""
        return prompt_lengths(self.llm, self.questions)

    def room(self, question: Question) -> int:
        """Return how many tokens the model has room for after a question's prompt."""
        return max(0, self.llm.predictor.info.max_length - self.prompt_lengths[question.id])


def prompt_lengths(llm: LLM, questions: Questions) -> dict[str, int]:
    """Return the number of tokens in each question's prompt as the model reads it, by its id."""
    return {
        question.id: len(llm.planner.prompt_ids(question.prompt, questions.chat))
        for question in questions.items
    }


def what_fits(option: str, most: int) -> str:
    """Return a sentence on the largest value of an option if the longest prompt leaves room for
    `most`.
    """
    if most < 1:
        return (
            "No length fits the longest prompt: give fewer --shots, or take a model with a longer "
            "context"
        )
    return f"No prompt is longer, so {option} up to {most} fits"


@dataclass(frozen=True)
class Sampled(Experiment):
    """Several answers to each question, graded and scored by every contender, and one greedy
    answer.
    """

    contenders: Contenders
    params: SamplingParams
    mode: Mode

    kind = "sampled"

    @property
    def grader(self) -> str:
        return self.questions.grader(self.mode)

    @property
    def settings(self) -> Record:
        return {
            "params": self.params.model_dump(mode="json"),
            "scorers": list(self.contenders.labels),
        }

    def check(self) -> None:
        """Raise InputError for a missing seed, without which a resumed run would draw differently,
        for a scorer without its model, for answers that are not graded, and for an item.
        """
        if self.params.seed is None:
            raise InputError(
                "an experiment needs a seed, so that it can go on and be repeated: name one", "seed"
            )
        self.contenders.check(self.llm.planner)
        _ = self.grader
        super().check()

    def remedy(self, item: Question) -> str:
        return what_fits("--max-tokens", self.room(item))

    def plan(self, item: Question) -> Plan[Record]:
        greedy = self.params.model_copy(update={"temperature": 0.0, "n": 1, "best_of": None})
        planner, chat = self.llm.planner, self.questions.chat
        sampled, single = yield from gather(
            planner.generate(item.prompt, self.params, chat),
            planner.generate(item.prompt, greedy, chat),
        )
        outputs = sorted(sampled.outputs, key=lambda output: output.index)
        texts = planner.texts(
            item.prompt, [output.token_ids for output in outputs], self.params, chat
        )
        judge = planner.translation(item.prompt, chat)
        scores = yield from gather(*(self.contenders.score(text, judge) for text in texts))
        return {
            "id": item.id,
            "nfe": {"all": sampled.usage.nfe, "one": single.usage.nfe},
            "greedy": self._graded(item, single.outputs[0]),
            "answers": [
                {**self._graded(item, output), "token_ids": list(output.token_ids), "scores": its}
                for output, its in zip(outputs, scores, strict=True)
            ],
        }

    def _graded(self, question: Question, output: CompletionOutput) -> Record:
        return {"text": output.text, **self.questions.graded(question, output.text, self.mode)}


@dataclass(frozen=True)
class Likelihood(Experiment):
    """Every candidate of each question, scored by every contender."""

    contenders: Contenders
    scoring: ScoringParams = field(default_factory=ScoringParams)

    kind = "likelihood"

    @property
    def settings(self) -> Record:
        block_length = fitted(self.scoring, self.llm.predictor.info).block_length
        return {"scorers": list(self.contenders.labels), "block_length": block_length}

    def check(self) -> None:
        """Raise InputError for a scorer without its model, or for an item."""
        self.contenders.check(self.llm.planner)
        super().check()

    def remedy(self, item: Question) -> str:
        return (
            f"Give fewer --shots, leave {item.id} out of --data, or take a model with a longer "
            "context"
        )

    def candidates(self, item: Question) -> list[str]:
        """Return the candidates as they follow the prompt.

        In a conversation each starts an answer, so the space that separates it from the prompt's
        last word is dropped, as in lm-evaluation-harness.
        """
        chat, tokenizer = self.questions.chat, self.llm.predictor.tokenizer
        is_chat = tokenizer.has_chat_template if chat is None else chat
        return [
            candidate.removeprefix(" ") if is_chat else candidate for candidate in item.candidates
        ]

    def end_id(self, item: Question) -> int | None:  # noqa: ARG002
        """Return the end token that is read after each text; None for candidates, which go on."""
        return None

    def plan(self, item: Question) -> Plan[Record]:
        planner, chat = self.llm.planner, self.questions.chat
        texts = planner.texts(item.prompt, self.candidates(item), self.scoring, chat)
        judge, end_id = planner.translation(item.prompt, chat), self.end_id(item)
        scores = yield from gather(*(self.contenders.score(text, judge, end_id) for text in texts))
        return {"id": item.id, "right": item.right, "candidates": scores}


@dataclass(frozen=True)
class Given(Likelihood):
    """Given answers, graded and scored by every contender.

    A question's row holds its `response`, from which special tokens like <|this|> are removed. `by`
    names the field of the row that holds the group in which it is reported, for example the length
    that it was written with; None reports all together.
    """

    mode: Mode = "robust"
    by: str | None = None

    kind = "given"

    @property
    def grader(self) -> str:
        return self.questions.grader(self.mode)

    @property
    def settings(self) -> Record:
        return super().settings | {"by": self.by, "finished": True}

    def end_id(self, item: Question) -> int | None:
        return self.llm.planner.end_id(item.prompt, self.questions.chat)

    def check(self) -> None:
        """Raise InputError for answers that are not graded, for a row without a response or group,
        for a scorer without its model, and for an item.
        """
        _ = self.grader
        for item in self.questions.items:
            for name in ("response", *filter(None, [self.by])):
                if name not in item.row:
                    raise InputError(f"{item.id} of --data has no {name!r}", "data")
        super().check()

    def candidates(self, item: Question) -> list[str]:
        return [SPECIAL.sub("", item.row["response"])]

    def plan(self, item: Question) -> Plan[Record]:
        [answer], group = self.candidates(item), item.row.get(self.by or "", "all")
        [scores] = (yield from super().plan(item))["candidates"]
        graded = self.questions.graded(item, answer, self.mode)
        return {"id": item.id, "group": str(group), **graded, "scores": scores}


@dataclass(frozen=True, slots=True)
class Trial:
    """One question put to one length controller."""

    variant: str
    question: Question

    @property
    def id(self) -> str:
        return f"{self.variant} | {self.question.id}"


@dataclass(frozen=True)
class Lengths(Experiment):
    """One answer to each question by each length controller; the controllers run one after the
    other, so that each has its own time.

    max_iterations: by how many tokens the variants' longest answers exceed the base length that the
    user named.
    """

    variants: Mapping[str, SamplingParams]
    mode: Mode
    max_iterations: int = 0

    kind = "length"
    is_timed = True

    @property
    def grader(self) -> str:
        return self.questions.grader(self.mode)

    @property
    def settings(self) -> Record:
        return {name: params.model_dump(mode="json") for name, params in self.variants.items()}

    @property
    def items(self) -> Sequence[Trial]:
        return [
            Trial(variant, question)
            for variant in self.variants
            for question in self.questions.items
        ]

    def check(self) -> None:
        """Raise InputError for answers that are not graded, or for a trial."""
        _ = self.grader
        super().check()

    def hardest(self) -> Sequence[Trial]:
        """Return the longest prompt with every controller, the longest answer first, then all other
        prompts with the controller of the longest answer.
        """
        longest, *others = super().hardest()
        variants = sorted(self.variants, key=lambda variant: -self.variants[variant].max_tokens)
        return [
            *(Trial(variant, longest) for variant in variants),
            *(Trial(variants[0], question) for question in others),
        ]

    def remedy(self, item: Trial) -> str:
        most = self.room(item.question) - self.max_iterations
        return what_fits("--base-length", most) + f" with --max-iterations {self.max_iterations}"

    def plan(self, item: Trial) -> Plan[Record]:
        params = self.variants[item.variant]
        answer = yield from self.llm.planner.generate(
            item.question.prompt, params, self.questions.chat
        )
        return self.record(item, answer)

    def record(self, item: Trial, answer: RequestOutput) -> Record:
        output = answer.outputs[0]
        graded = self.questions.graded(item.question, output.text, self.mode)
        return {
            "id": item.id,
            "variant": item.variant,
            "text": output.text,
            "is_correct": graded["is_correct"],
            "nfe": answer.usage.nfe,
            "num_tokens": len(output.token_ids),
            "stopped_by": output.stopped_by,
        }
