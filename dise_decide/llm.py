"""`decide` for loaded models: LLM and AsyncLLM with one more verb, and jobs for programs
that have either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import cast, overload

from dise_core.errors import InputError
from dise_core.front.async_llm import AsyncLLM, awaited
from dise_core.front.llm import LLM
from dise_core.front.planner import Planner
from dise_core.front.verbs import Job, Verbs, one_result, results
from dise_core.models.inputs import check_list, params_of
from dise_core.plans.plan import numbered
from dise_decide.calibration import DecisionCalibration
from dise_decide.deciding import decision
from dise_decide.outputs import DecisionOutput
from dise_decide.params import DecisionParams
from dise_decide.questions import Question
from dise_decide.slots import Subject

CalibrationLike = str | PathLike[str] | DecisionCalibration | None


def decisions(
    planner: Planner,
    inputs: Sequence[Subject],
    questions: Sequence[Question],
    params: DecisionParams | None = None,
    chat: bool | None = None,
    calibration: CalibrationLike = None,
) -> Job[list[DecisionOutput]]:
    """Return the job of the answers to the questions about each input, in order."""
    if len(inputs) == 0:
        raise InputError("no input given", "input")
    how = params_of(params, DecisionParams), chat, DecisionCalibration.of(calibration)
    plans = [decision(planner, subject, questions, *how) for subject in inputs]
    return Job(numbered(plans, "input"), results)


class Deciding(Verbs):
    """Answers typed questions."""

    @overload
    def decide(  # type: ignore[overload-overlap]
        self,
        given: Subject,
        questions: Sequence[Question],
        params: DecisionParams | None = None,
        *,
        chat: bool | None = None,
        calibration: CalibrationLike = None,
    ) -> DecisionOutput: ...

    @overload
    def decide(
        self,
        given: Sequence[Subject],
        questions: Sequence[Question],
        params: DecisionParams | None = None,
        *,
        chat: bool | None = None,
        calibration: CalibrationLike = None,
    ) -> list[DecisionOutput]: ...

    def decide(
        self,
        given: Subject | Sequence[Subject],
        questions: Sequence[Question],
        params: DecisionParams | None = None,
        *,
        chat: bool | None = None,
        calibration: CalibrationLike = None,
    ) -> DecisionOutput | list[DecisionOutput]:
        """Return the answers to typed questions about one input, a text or a
        conversation; for a list of inputs, a list with one such answer each.

        Examples:
            >>> spam = PredicateQuestion(instructions="Is this spam?")
            >>> llm.decide("You have won!", [spam]).answers[0].probability

        A probability is the softmax over the question's labels of the mean
        log-probability that a label's tokens have at the masks of the question's slot; an
        auto-regressive model judges by its next tokens. By a calibration, a file of `dise
        calibrate --decisions`, probabilities and confidences are those of being right;
        params left unsaid are its own. Raises InputError for what cannot be asked, before
        any pass.
        """
        is_one = _is_one(given)
        inputs = cast("Sequence[Subject]", [given] if is_one else given)
        job = decisions(self.planner, inputs, questions, params, chat, calibration)
        return self.do(Job(job.plans, one_result)) if is_one else self.do(job)


class DecidingLLM(Deciding, LLM):
    """LLM, which answers typed questions too."""


class AsyncDecidingLLM(AsyncLLM):
    """AsyncLLM, which answers typed questions too."""

    decide = awaited(Deciding.decide)


def _is_one(subject: object) -> bool:
    """Return whether it is one text or one conversation rather than a list of them."""
    if isinstance(subject, str):
        return True
    check_list(subject, "input", "a text, a conversation or a list of either")
    items = list(cast("Sequence[object]", subject))
    return len(items) > 0 and all(isinstance(item, Mapping) for item in items)
