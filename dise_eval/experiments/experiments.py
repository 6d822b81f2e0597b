"""The paper's experiments as plans. Each item has a record of its own."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Generic

from dise_core import LLM, Plan, SamplingParams, ScoringParams, gather
from dise_core.errors import InputError, TooLongError
from dise_core.front.model_limits import fitted
from dise_core.front.outputs import CompletionOutput
from dise_core.params.objects import with_names
from dise_core.plans.outcome import Outcome
from dise_eval.datasets.dataset import Problem
from dise_eval.datasets.questions import ProblemSet
from dise_eval.experiments.records import (
    GivenRecord,
    GradedRecord,
    RankedRecord,
    RecordT,
    SampledRecord,
    ScoreRecord,
)
from dise_eval.experiments.scoring import Contenders
from dise_eval.experiments.usual import DRAWN, params_with
from dise_eval.graders import Mode

SPECIAL = re.compile(r"<\|[a-z_]+\|>")

LONGER_CONTEXT = "take a model with a longer context"


@dataclass(frozen=True)
class Experiment(ABC, Generic[RecordT]):
    """An experiment: a plan of one record for each item."""

    llm: LLM
    questions: ProblemSet

    kind: ClassVar[str] = "experiment"

    @property
    def items(self) -> Sequence[Any]:
        """The items, each with an `id`, that get one record each: the questions."""
        return self.questions.items

    @property
    def grader(self) -> str | None:
        """The grader's version, if any. Raises InputError if answers are ranked."""
        return None

    @property
    @abstractmethod
    def settings(self) -> dict[str, object]:
        """What the records depend on besides the model and the data, as JSON."""

    @property
    def usual(self) -> dict[str, object]:
        """What a journal's key holds where nobody chose an option: that of an older version
        may lack it.
        """
        grader = None if self.grader is None else self.questions.grader("robust")
        return {"chat": None, "grader": grader, "settings": self.usual_settings}

    @property
    @abstractmethod
    def usual_settings(self) -> dict[str, object]:
        """The settings where nobody chose an option."""

    @abstractmethod
    def plan(self, item: Any) -> Plan[RecordT]:
        """Return a plan of the record of one item."""

    def check(self) -> None:
        """Raise InputError for answers that are not graded, and that of an item that
        cannot run, trying the longest prompt first, without a forward pass.

        Each plan runs up to its first reads; by then it has checked its request. Problems
        that only a finished text shows, such as its length in a judge's tokens, are not
        found here.
        """
        _ = self.grader
        for item in self.hardest():
            self.begin(item)

    def begin(self, item: Any) -> None:
        """Raise the InputError of an item that cannot run."""
        with closing(self.plan(item)) as plan:
            try:
                next(plan, None)
            except TooLongError as error:
                raise TooLongError(
                    f"{item.id}: {error}. {self.remedy(item)}", error.parameter
                ) from error

    def outcomes(self, items: Iterable[Any]) -> Iterator[Outcome[RecordT]]:
        """Run the plans of the items, as many at a time as the engine admits."""
        return self.llm.engine.run(map(self.plan, items))

    def hardest(self) -> Sequence[Any]:
        """Return items whose success means that all can run, the longest prompt first."""
        return sorted(self.questions.items, key=lambda question: -self.prompt_lengths[question.id])

    @abstractmethod
    def remedy(self, item: Any) -> str:
        """Return a sentence on what to do where the longest prompt is too long."""

    @cached_property
    def prompt_lengths(self) -> Mapping[str, int]:
        """How many tokens the model reads for each question's prompt, by id."""
        count, chat = self.llm.planner.prompt_ids, self.questions.chat
        return {item.id: len(count(item.prompt, chat)) for item in self.questions.items}

    def room(self, question: Problem) -> int:
        """Return how many tokens the model has room for after a question's prompt."""
        return max(0, self.llm.predictor.info.max_length - self.prompt_lengths[question.id])


def what_fits(option: str, maximum: int) -> str:
    """Return a sentence on an option's largest value."""
    if maximum < 1:
        return f"No length fits the longest prompt: give fewer --shots, or {LONGER_CONTEXT}"
    return f"No prompt is longer, so {option} up to {maximum} fits"


@dataclass(frozen=True)
class Sampled(Experiment[SampledRecord]):
    """Several scored answers to each question, and one greedy answer."""

    contenders: Contenders
    params: SamplingParams
    mode: Mode

    kind: ClassVar[str] = "sampled"

    @property
    def grader(self) -> str:
        return self.questions.grader(self.mode)

    @property
    def settings(self) -> dict[str, object]:
        return {
            "params": with_names(self.params).model_dump(mode="json"),
            "scorers": list(self.contenders.labels),
        }

    @property
    def usual_settings(self) -> dict[str, object]:
        return {"params": params_with(DRAWN), "scorers": list(self.contenders.usual)}

    def check(self) -> None:
        """Raise InputError without a seed, too: a resumed run would draw differently."""
        if self.params.seed is None:
            raise InputError(
                "an experiment needs a seed, so that it can go on and be repeated: name one", "seed"
            )
        self.contenders.check(self.llm.planner)
        super().check()

    def remedy(self, item: Problem) -> str:
        return what_fits("--max-tokens", self.room(item))

    def plan(self, item: Problem) -> Plan[SampledRecord]:
        greedy = self.params.model_copy(update={"temperature": 0.0, "n": 1, "best_of": None})
        planner, chat = self.llm.planner, self.questions.chat
        sampled, single = yield from gather(
            planner.generate(item.prompt, self.params, chat, self.contenders.recorded),
            planner.generate(item.prompt, greedy, chat),
        )
        outputs = sorted(sampled.outputs, key=lambda output: output.index)
        texts = planner.texts(
            item.prompt, [output.token_ids for output in outputs], self.params, chat
        )
        judge = planner.translation(item.prompt, chat)
        pairs = zip(texts, outputs, strict=True)
        sequences = (replace(text, writing=output.writing) for text, output in pairs)
        scores = yield from gather(*(self.contenders.score(text, judge) for text in sequences))
        return {
            "id": item.id,
            "nfe": {"all": sampled.usage.nfe, "one": single.usage.nfe},
            "greedy": self._grade(item, single.outputs[0]),
            "answers": [
                {**self._grade(item, output), "token_ids": list(output.token_ids), "scores": values}
                for output, values in zip(outputs, scores, strict=True)
            ],
        }

    def _grade(self, question: Problem, output: CompletionOutput) -> GradedRecord:
        return {"text": output.text, **self.questions.graded(question, output.text, self.mode)}


@dataclass(frozen=True)
class Scored(Experiment[RecordT]):
    """Texts that are at hand, scored by every contender."""

    contenders: Contenders
    scoring: ScoringParams = field(default_factory=ScoringParams)

    @property
    def settings(self) -> dict[str, object]:
        return self._settings(self.contenders.labels, self.scoring)

    @property
    def usual_settings(self) -> dict[str, object]:
        return self._settings(self.contenders.usual, ScoringParams())

    def _settings(self, labels: Sequence[str], scoring: ScoringParams) -> dict[str, object]:
        block_length = fitted(scoring, self.llm.predictor.info).block_length
        return {"scorers": list(labels), "block_length": block_length}

    def check(self) -> None:
        self.contenders.check(self.llm.planner)
        super().check()

    def remedy(self, item: Problem) -> str:
        return f"Give fewer --shots, leave {item.id} out of --data, or {LONGER_CONTEXT}"

    def scores(
        self, item: Problem, texts: Sequence[str], end_id: int | None = None
    ) -> Plan[list[dict[str, ScoreRecord]]]:
        """Return a plan of each text's scores. end_id: the token read after it."""
        planner, chat = self.llm.planner, self.questions.chat
        sequences = planner.texts(item.prompt, texts, self.scoring, chat)
        judge = planner.translation(item.prompt, chat)
        plans = (self.contenders.score(text, judge, end_id) for text in sequences)
        return (yield from gather(*plans))


@dataclass(frozen=True)
class Likelihood(Scored[RankedRecord]):
    """Every contender's score of every candidate. finished: whether each has an end."""

    finished: bool = False

    kind: ClassVar[str] = "likelihood"

    @property
    def settings(self) -> dict[str, object]:
        return super().settings | ({"finished": True} if self.finished else {})

    @property
    def usual_settings(self) -> dict[str, object]:
        return super().usual_settings | {"finished": False}

    def candidates(self, item: Problem) -> list[str]:
        """Return the candidates as they follow the prompt.

        In a conversation each starts an answer, so the space that separates it from the
        prompt's last word is dropped, as in lm-evaluation-harness.
        """
        chat, tokenizer = self.questions.chat, self.llm.predictor.tokenizer
        is_chat = tokenizer.has_chat_template if chat is None else chat
        return [text.removeprefix(" ") if is_chat else text for text in item.candidates]

    def plan(self, item: Problem) -> Plan[RankedRecord]:
        planner, chat = self.llm.planner, self.questions.chat
        end_id = planner.end_id(item.prompt, chat) if self.finished else None
        scores = yield from self.scores(item, self.candidates(item), end_id)
        return {"id": item.id, "right": item.right, "candidates": scores}


@dataclass(frozen=True)
class GivenAnswers(Scored[GivenRecord]):
    """Given answers, graded and scored by every contender.

    A question's row holds its `response`, from which special tokens like <|this|> are removed. `by`
    names the field of the row that holds the group in which it is reported, for example
    the length that it was written with; None reports all together.
    """

    mode: Mode = "robust"
    by: str | None = None

    kind: ClassVar[str] = "given"

    @property
    def grader(self) -> str:
        return self.questions.grader(self.mode)

    @property
    def settings(self) -> dict[str, object]:
        return super().settings | {"by": self.by, "finished": True}

    @property
    def usual_settings(self) -> dict[str, object]:
        return super().usual_settings | {"by": None, "finished": True}

    def check(self) -> None:
        _ = self.grader
        for item in self.questions.items:
            for name in ("response", *filter(None, [self.by])):
                if name not in item.row:
                    raise InputError(
                        f"{item.id} of --data has no {name!r}: give --data FILE, each line of "
                        "which has one",
                        "data",
                    )
            if not isinstance(text := item.row["response"], str):
                raise InputError(
                    f"{item.id} of --data: its 'response' must be a text, not {text!r:.80}", "data"
                )
        super().check()

    def plan(self, item: Problem) -> Plan[GivenRecord]:
        answer, group = SPECIAL.sub("", item.row["response"]), item.row.get(self.by or "", "all")
        end_id = self.llm.planner.end_id(item.prompt, self.questions.chat)
        [scores] = yield from self.scores(item, [answer], end_id)
        graded = self.questions.graded(item, answer, self.mode)
        return {"id": item.id, "group": str(group), **graded, "scores": scores}
