"""dise decide: yes or no, which of these, how much? With probabilities."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from dise_app.cli import options
from dise_decide.params import DecisionParams

if TYPE_CHECKING:
    from dise_decide.outputs import DecisionOutput
    from dise_decide.questions import Question

REQUEST = options.Own(
    input=options.option(
        list[str] | None, "The text to judge, or - for standard input; repeatable."
    ),
    yes_no=options.option(list[str] | None, "A question to answer with yes or no; repeatable."),
    choice=options.option(
        list[str] | None, "A question and the answers to choose from; repeatable.", metavar="Q=A,B"
    ),
    scale=options.option(
        list[str] | None,
        "A question and its levels, lowest first; repeatable.",
        metavar="Q=LOW,..,HIGH",
    ),
    chat=(options.Chat, None),
    as_json=(options.Json, False),
)


@options.verb(
    request=REQUEST,
    models=options.TARGET,
    deciding=options.FieldOptions(DecisionParams, panel="How the questions are asked"),
    engine=options.ENGINE,
)
def decide(*, parts: options.Parts) -> None:
    """Answer typed questions about a text, with probabilities.

    They are answered in this order: yes or no, one of several choices, a level of a scale.
    """
    from dise_app.cli.answer import load, shown_by
    from dise_app.terminal.piped import given_texts, piped_texts
    from dise_core import InputError
    from dise_decide.llm import decisions

    request = parts.request
    texts = request["input"] or piped_texts()
    if not texts:
        raise InputError(f"give --input TEXT, or --input - for standard input; {shown_by(parts)}")
    questions = _questions(*(request[name] or [] for name in ("yes_no", "choice", "scale")))
    params = DecisionParams(**parts.deciding)
    texts = given_texts(texts)
    llm = load(parts.models, parts.engine)
    outputs = llm.do(decisions(llm.planner, texts, questions, params, request["chat"]))
    for text, output in zip(texts, outputs, strict=True):
        if request["as_json"]:
            print(json.dumps(output.to_dict(), ensure_ascii=False, allow_nan=False))
        else:
            _show(text, questions, output)


def _questions(yes_no: list[str], choice: list[str], scale: list[str]) -> list[Question]:
    from dise_core import InputError
    from dise_decide.questions import ChoiceQuestion, PredicateQuestion, ScoreQuestion

    if not yes_no + choice + scale:
        raise InputError("give at least one question: --yes-no, --choice or --scale")
    questions: list[Question] = [PredicateQuestion(instructions=text) for text in yes_no]
    for instructions, labels in (_split(text, "--choice") for text in choice):
        questions.append(ChoiceQuestion(instructions=instructions, choices=labels))
    for instructions, labels in (_split(text, "--scale") for text in scale):
        questions.append(ScoreQuestion(instructions=instructions, levels=labels))
    return questions


def _split(text: str, option: str) -> tuple[str, list[str]]:
    """Return the question before the last "=", and the labels after it."""
    from dise_core import InputError

    question, equals, labels = text.rpartition("=")
    if not equals or not question.strip():
        raise InputError(f"{option} is written QUESTION=A,B,..., not {text!r:.80}")
    return question, [label.strip() for label in labels.split(",")]


def _show(text: str, questions: list[Question], output: DecisionOutput) -> None:
    """Print one input's answers as a table, and their cost."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from dise_app.terminal.render import printable
    from dise_decide.outputs import PredicateAnswer, ScoreAnswer

    console = Console(highlight=False, emoji=False)
    console.print(f"[bold]{escape(printable(text))}[/bold]")
    table = Table("question", "answer", "probabilities", "label mass")
    for question, answer in zip(questions, output.answers, strict=True):
        if isinstance(answer, PredicateAnswer):
            shares = {"yes": answer.probability, "no": 1 - answer.probability}
            best = max(shares, key=lambda label: shares[label])
        elif isinstance(answer, ScoreAnswer):
            shares = {level.label: level.probability for level in answer.probabilities}
            best = f"{answer.score:.2f} of {len(shares) - 1}"
        else:
            shares = {str(choice.value): choice.probability for choice in answer.probabilities}
            best = str(answer.choice)
        listed = "  ".join(f"{label} {share:.3f}" for label, share in shares.items())
        cells = (question.instructions, best, listed, f"{answer.diagnostics.label_mass:.3f}")
        table.add_row(*(escape(printable(cell)) for cell in cells))
    console.print(table)
    for warning in output.warnings:
        console.print(f"[yellow]warning: {escape(printable(warning))}[/yellow]")
    usage = output.usage
    passes = "1 forward pass" if usage.nfe == 1 else f"{usage.nfe} forward passes"
    console.print(f"[dim]{passes}, {usage.seconds:.2f} s[/dim]")
