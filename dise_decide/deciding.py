"""Answers typed questions from the model's probabilities at the masks of their slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from dise_core.arrays import Ids
from dise_core.errors import InputError, TooLongError
from dise_core.front.outputs import Usage
from dise_core.front.planner import Planner
from dise_core.models.info import ModelInfo
from dise_core.models.inputs import check_choice, check_messages
from dise_core.models.predictor import MaskPredictor
from dise_core.models.prompts import Prompts
from dise_core.plans.cost import count_cost
from dise_core.plans.plan import Plan
from dise_decide.calibration import DecisionCalibration
from dise_decide.outputs import DecisionOutput, doubts
from dise_decide.params import DecisionParams
from dise_decide.questions import Question, check_questions
from dise_decide.readings import asked_texts, combine
from dise_decide.slot_reads import read_slots
from dise_decide.slots import ShownQuestion, SlotText, Subject, collect, join, leads, with_questions


def decision(
    planner: Planner,
    subject: Subject,
    questions: Sequence[Question],
    params: DecisionParams,
    chat: bool | None = None,
    calibration: DecisionCalibration | None = None,
) -> Plan[DecisionOutput]:
    """Return a plan of the answers to typed questions about a text or a conversation, by
    a calibration if there is one. All is checked before its first read.
    """
    check_choice(chat, "chat")
    checked = check_questions(questions)
    if calibration is not None:
        calibration.check_model(planner.predictor)
        params = calibration.applied(params)
        for question in checked:
            calibration.fit_of(question)
    asking = Asking(Prompts(planner.predictors), params, chat)
    asking.check(subject, checked)
    if calibration is not None:
        calibration.check_chat(is_chat(planner.predictor, subject, chat))
    texts, apart = asking.texts(subject, checked)
    info = planner.predictor.info
    readings, cost = yield from count_cost(read_slots(texts, info))
    slots = iter(readings)
    findings = [(question, combine(question, params, slots)) for question in checked]
    if calibration is not None:
        findings = [(question, calibration.calibrated(question, raw)) for question, raw in findings]
    answers = tuple(question.answer(finding) for question, finding in findings)
    num_slots = sum(text.num_slot_tokens for text in texts)
    num_tokens = sum(len(text.ids) - text.num_masks for text in texts)
    cached = max(0, num_tokens - cost.tokens)
    return DecisionOutput(
        model=info.name,
        answers=answers,
        is_joint=params.joint and apart is None,
        usage=Usage(num_tokens, num_slots, cost.nfe, cost.computed, 0.0, cached),
        warnings=(*([apart] if apart else []), *doubts(answers)),
    )


def is_chat(predictor: MaskPredictor, subject: Subject, chat: bool | None) -> bool:
    """Return whether an input goes through the model's chat template."""
    has_template = predictor.tokenizer.has_chat_template
    return not isinstance(subject, str) or (chat is not False and has_template)


@dataclass(frozen=True, slots=True)
class Asking:
    """Makes texts of questions. chat: whether an input goes through the chat template."""

    prompts: Prompts
    params: DecisionParams
    chat: bool | None

    @property
    def _info(self) -> ModelInfo:
        return self.prompts.predictor.info

    def check(self, subject: Subject, questions: Sequence[Question]) -> None:
        """Raise InputError for empty input or instructions, or a model without slots."""
        if not isinstance(subject, str):
            check_messages(subject)
        else:
            self.prompts.refuse_endless(subject, "input")
            if not subject.strip():
                raise InputError("the input is empty", "input")
        info = self._info
        if not info.is_autoregressive and info.special.mask_id is None:
            raise InputError(f"{info.name!r} has no mask token, so it has no slots", "model")
        if self.params.layout == "questions" and not all(q.instructions.strip() for q in questions):
            raise InputError("a question without instructions asks nothing", "questions")

    def texts(
        self, subject: Subject, questions: Sequence[Question]
    ) -> tuple[list[SlotText], str | None]:
        """Return the texts that ask the questions. With joint, also why they are several
        if one text cannot hold them all.
        """
        wordings = chain.from_iterable(asked_texts(q, self.params) for q in questions)
        if not self.params.joint or len(questions) == 1:
            return collect(self._text(subject, [question]) for question in wordings), None
        together = self._together(subject, menus := list(wordings))
        if isinstance(together, SlotText):
            return collect([together]), None
        apart = f"joint: each question was asked in a text of its own, because {together}"
        return collect(self._text(subject, [question]) for question in menus), apart

    def _together(self, subject: Subject, questions: Sequence[ShownQuestion]) -> SlotText | str:
        """Return one text with all questions, or why they cannot share one."""
        info = self._info
        if info.is_autoregressive:
            return f"{info.name!r} is auto-regressive: a later answer would depend on earlier ones"
        try:
            text = self._text(subject, questions)
        except TooLongError as error:
            return str(error)
        start, last = text.slots[0].start, text.stop - 1
        blocks = info.blocks(start)
        if blocks is not None and blocks.start_of(start) != blocks.start_of(last):
            return f"their slots lie in several blocks of {blocks.length} tokens"
        return text

    def _text(self, subject: Subject, questions: Sequence[ShownQuestion]) -> SlotText:
        """Return one text that asks all of it. Raises InputError for a mask outside the
        slots, TooLongError for a text that the model does not take.
        """
        is_cloze, info = self.params.layout == "cloze", self._info
        texts = [question.instructions for question in questions]
        texts = texts if is_cloze else leads(len(questions))
        before = self._context(subject if is_cloze else with_questions(subject, questions))
        parts = [self.prompts.encode(text) if text else before[:0] for text in texts]
        parts[0] = np.concatenate([before, parts[0]])
        text = join(parts, questions, self.prompts.predictor, "" if is_cloze else " ")
        if (text.ids == info.special.mask_id).sum() > text.num_masks:
            raise InputError("the input holds the mask token; it must be finished text", "input")
        if text.stop > info.max_length:
            several = len(questions) > 1
            raise TooLongError(
                f"{len(questions)} question{'s' * several} with the input and "
                f"{'slots' if several else 'a slot'} of {text.num_slot_tokens} tokens take "
                f"{text.stop} tokens, more than the model's limit of {info.max_length}",
                "questions",
            )
        return text

    def _context(self, subject: Subject) -> Ids:
        """Return the tokens of the input, up to where the model's answer begins."""
        if not isinstance(subject, str):
            return self.prompts.conversation(subject).ids
        prompt = self.prompts.read(subject, self.chat)
        if prompt.is_turn or not self._info.is_autoregressive:
            return prompt.ids
        return np.concatenate([self.prompts.predictor.tokenizer.start_ids, prompt.ids])
