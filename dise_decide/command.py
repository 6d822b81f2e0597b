"""dise decide: yes or no, which of these, how much? With probabilities."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dise_app.cli import options
from dise_decide.params import DecisionParams

if TYPE_CHECKING:
    from dise_core import LLM, Plan
    from dise_core.front.planner import Planner
    from dise_core.records import Fields, JsonFields, Record
    from dise_decide.calibration import DecisionCalibration
    from dise_decide.outputs import DecisionOutput
    from dise_decide.questions import Question

REQUEST = options.Own(
    yes_no=options.option(list[str] | None, "A question to answer with yes or no; repeatable."),
    choice=options.option(
        list[str] | None, "A question and the answers to choose from; repeatable.", metavar="Q=A,B"
    ),
    scale=options.option(
        list[str] | None,
        "A question and its levels, lowest first; repeatable.",
        metavar="Q=LOW,..,HIGH",
    ),
    questions=options.option(Path | None, "JSON: a list of questions as of POST /v1/decisions."),
)


@options.verb(
    *("yes_no", "choice", "scale", "questions", "model", "as_json"),
    request=REQUEST,
    shared=options.Own(chat=(options.Chat, None), as_json=(options.Json, False)),
    files=options.FILES,
    models=options.TARGET,
    deciding=options.FieldOptions(DecisionParams, panel="How the questions are asked"),
    engine=options.ENGINE,
)
def decide(
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            help="Texts to judge; - is standard input. Or give --input.", metavar="TEXT"
        ),
    ] = None,
    *,
    parts: options.Parts,
) -> None:
    """Answer typed questions about texts, with probabilities.

    They are answered in this order: yes or no, one of several choices, a level of a
    scale, those of a file. Lines of --input hold "input", a text or messages, and
    "questions" if they have their own.
    """
    from dise_app.cli.answer import answer_file, opened, refuse_both_or_neither
    from dise_app.files import jsonl
    from dise_app.terminal.piped import given_texts, piped_texts
    from dise_core import InputError
    from dise_decide.calibration import DecisionCalibration
    from dise_decide.llm import decisions

    files = parts.files["input"]
    texts = texts or (piped_texts() if files is None else None)
    refuse_both_or_neither(bool(texts), parts, "TEXT, or - for standard input,")
    is_file = files not in (None, jsonl.STANDARD) and options.runner_of(parts.files) is None
    if is_file and not os.path.exists(files):
        raise InputError(f"cannot read {str(files)!r:.80}: no such file; a text needs no --input")
    questions = _questions(parts.request)
    if not questions and texts:
        raise InputError("give at least one question: --yes-no, --choice, --scale or --questions")
    params = DecisionParams(**parts.deciding)
    calibration = DecisionCalibration.of(parts.engine.pop("calibration", None))
    asking = _Asking(questions, parts.shared["chat"], calibration)
    if files is not None:
        params = params if calibration is None else calibration.applied(params)
        return answer_file(parts, params, asking.answer, asking.facts)
    texts, llm = given_texts(texts or []), opened(parts.models, parts.engine)
    job = decisions(llm.planner, texts, questions, params, asking.chat, calibration)
    outputs = llm.do(job)
    for text, output in zip(texts, outputs, strict=True):
        if parts.shared["as_json"]:
            print(json.dumps(output.to_dict(), ensure_ascii=False, allow_nan=False))
        else:
            _show(text, questions, output)


@dataclass(frozen=True)
class _Asking:
    """How the lines of a file are asked. questions: for lines that have none."""

    questions: Sequence[Question]
    chat: bool | None
    calibration: DecisionCalibration | None

    def facts(self, llm: LLM) -> JsonFields:
        """Return what answers depend on. Raises InputError for another model's file."""
        if self.calibration is not None:
            self.calibration.check_model(llm.predictor)
        digest = None if self.calibration is None else self.calibration.digest
        return {"calibration": digest, "questions": _records(self.questions)}

    def answer(
        self, planner: Planner, line: JsonFields, params: DecisionParams
    ) -> Plan[DecisionOutput]:
        """Return a plan of a line's answers, and how they were asked."""
        from dise_core import InputError
        from dise_core.scoring.calibration import fingerprint
        from dise_decide.deciding import decision, is_chat
        from dise_decide.questions import check_questions

        if not isinstance(subject := line.get("input"), str | list):
            raise InputError('needs "input", a text or a list of messages', "input")
        listed = line.get("questions")
        if listed is None and not self.questions:
            raise InputError('needs "questions"; or give some as options', "questions")
        questions = self.questions if listed is None else check_questions(listed)
        context = {
            "questions": _records(questions) if listed is None else listed,
            "params": params.model_dump(mode="json"),
            "tokenizer": fingerprint(planner.predictor),
            "chat": is_chat(planner.predictor, subject, self.chat),
        }
        how = params, self.chat, self.calibration
        output = yield from decision(planner, subject, questions, *how)
        return replace(output, asked=context)


def _records(questions: Sequence[Question]) -> list[Record]:
    return [question.model_dump(mode="json") for question in questions]


def _questions(fields: Fields) -> Sequence[Question]:
    from dise_app.files.texts import json_file
    from dise_core import InputError
    from dise_decide.questions import check_questions

    questions: list[object] = []
    questions += [{"type": "predicate", "instructions": text} for text in fields["yes_no"] or []]
    for option, kind, field in (("choice", "choice", "choices"), ("scale", "score", "levels")):
        for text in fields[option] or []:
            question, _, labels = text.rpartition("=")
            answers = [label.strip() for label in labels.split(",")]
            if not question.strip() or len(answers) < 2 or not all(answers):
                raise InputError(
                    f"--{option} is written QUESTION=A,B,... with two or more answers, each a "
                    f"text, not {text!r:.80}",
                    option,
                )
            questions.append({"type": kind, "instructions": question, field: answers})
    if fields["questions"] is not None:
        questions += check_questions(json_file(fields["questions"]))
    return check_questions(questions) if questions else []


def _show(text: str, questions: Sequence[Question], output: DecisionOutput) -> None:
    """Print one input's answers as a table, and their cost."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from dise_app.terminal.styles import printable
    from dise_decide.outputs import PredicateAnswer, ScoreAnswer

    console = Console(highlight=False, emoji=False)
    console.print(f"[bold]{escape(printable(text))}[/bold]")
    has_sets = any(answer.answer_set for answer in output.answers)
    table = Table("question", "answer", "probabilities", "label mass", *["answer set"] * has_sets)
    for question, answer in zip(questions, output.answers, strict=True):
        is_predicate, shares = isinstance(answer, PredicateAnswer), answer.shares
        labels = ("yes", "no") if is_predicate else question.labels
        best = labels[shares.index(max(shares))]
        if isinstance(answer, ScoreAnswer):
            best = f"{answer.score:.2f} of {len(shares) - 1}"
        best = f"abstained ({best})" if answer.abstained else best
        pairs = zip(labels, shares, strict=True)
        listed = "  ".join(f"{label} {share:.3f}" for label, share in pairs)
        cells = [
            question.instructions or question.name or "",
            best,
            listed,
            f"{answer.diagnostics.label_mass:.3f}",
        ]
        if (members := answer.answer_set) is not None:
            values = ", ".join(map(str, members.values)) or "none"
            cells.append(f"{values} ({members.coverage:.0%})")
        table.add_row(*(escape(printable(cell)) for cell in cells))
    console.print(table)
    for warning in output.warnings:
        console.print(f"[yellow]warning: {escape(printable(warning))}[/yellow]")
    usage = output.usage
    passes = "1 forward pass" if usage.nfe == 1 else f"{usage.nfe} forward passes"
    console.print(f"[dim]{passes}, {usage.seconds:.2f} s[/dim]")
