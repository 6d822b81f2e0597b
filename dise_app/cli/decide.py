"""dise decide: yes or no, which of these, how much? With probabilities."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from dise_app.cli import options
from dise_core.params import DecisionParams

if TYPE_CHECKING:
    from dise_core.decisions import DecisionOutput
    from dise_core.questions import Question

DECIDING = options.Own(chat=(options.Chat, None), as_json=(options.Json, False))


@options.verb(
    shared=DECIDING,
    models=options.TARGET,
    deciding=options.Fields(DecisionParams),
    engine=options.ENGINE,
)
def decide(
    given: Annotated[
        list[str] | None,
        typer.Option("--input", help="The text to judge, or - for standard input; repeatable."),
    ] = None,
    yes_no: Annotated[
        list[str] | None, typer.Option(help="A question to answer with yes or no; repeatable.")
    ] = None,
    choice: Annotated[
        list[str] | None,
        typer.Option(
            help="A question and the answers to choose from; repeatable.", metavar="Q=A,B"
        ),
    ] = None,
    scale: Annotated[
        list[str] | None,
        typer.Option(
            help="A question and its levels, lowest first; repeatable.", metavar="Q=LOW,..,HIGH"
        ),
    ] = None,
    *,
    parts: options.Parts,
) -> None:
    """Answer typed questions about a text, with probabilities.

    They are answered in this order: yes or no, one of several choices, a level of a scale.
    """
    from dise_app.cli.answer import load, shown_by
    from dise_app.cli.piped import given_texts, piped_texts
    from dise_core import InputError

    given = given or piped_texts()
    if not given:
        raise InputError(f"give --input TEXT, or --input - for standard input; {shown_by(parts)}")
    questions = _questions(yes_no or [], choice or [], scale or [])
    params = DecisionParams(**parts.deciding)
    texts = given_texts(given)
    llm = load(parts.models, parts.engine)
    outputs = llm.decide(texts, questions, params, chat=parts.shared["chat"])
    for text, output in zip(texts, outputs, strict=True):
        if parts.shared["as_json"]:
            print(json.dumps(output.to_dict(), ensure_ascii=False, allow_nan=False))
        else:
            _show(text, questions, output)


def _questions(yes_no: list[str], choice: list[str], scale: list[str]) -> list[Question]:
    from dise_core import ChoiceQuestion, InputError, PredicateQuestion, ScoreQuestion

    if not yes_no + choice + scale:
        raise InputError("give at least one question: --yes-no, --choice or --scale")
    asked: list[Question] = [PredicateQuestion(instructions=text) for text in yes_no]
    for text in choice:
        instructions, labels = _split(text, "--choice")
        asked.append(
            ChoiceQuestion.model_validate({"instructions": instructions, "choices": labels})
        )
    for text in scale:
        instructions, labels = _split(text, "--scale")
        asked.append(ScoreQuestion.model_validate({"instructions": instructions, "levels": labels}))
    return asked


def _split(given: str, option: str) -> tuple[str, list[str]]:
    """Return the question before the last "=", and the labels after it."""
    from dise_core import InputError

    question, equals, labels = given.rpartition("=")
    if not equals or not question.strip():
        raise InputError(f"{option} is written QUESTION=A,B,..., not {given!r:.80}")
    return question, [label.strip() for label in labels.split(",")]


def _show(text: str, questions: list[Question], output: DecisionOutput) -> None:
    """Print one input's answers as a table, and their cost."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from dise_app.cli.render import printable
    from dise_core import PredicateAnswer, ScoreAnswer

    console = Console(highlight=False, emoji=False)
    console.print(f"[bold]{escape(printable(text))}[/bold]")
    table = Table("question", "answer", "probabilities", "label mass")
    for question, answer in zip(questions, output.answers, strict=True):
        if isinstance(answer, PredicateAnswer):
            shares = {"yes": answer.probability, "no": 1 - answer.probability}
            told = max(shares, key=lambda label: shares[label])
        elif isinstance(answer, ScoreAnswer):
            shares = {each.label: each.probability for each in answer.probabilities}
            told = f"{answer.score:.2f} of {len(shares) - 1}"
        else:
            shares = {str(each.value): each.probability for each in answer.probabilities}
            told = str(answer.choice)
        listed = "  ".join(f"{label} {share:.3f}" for label, share in shares.items())
        cells = (question.instructions, told, listed, f"{answer.diagnostics.label_mass:.3f}")
        table.add_row(*(escape(printable(cell)) for cell in cells))
    console.print(table)
    for warning in output.warnings:
        console.print(f"[yellow]warning: {escape(printable(warning))}[/yellow]")
    usage = output.usage
    passes = "1 forward pass" if usage.nfe == 1 else f"{usage.nfe} forward passes"
    console.print(f"[dim]{passes}, {usage.seconds:.2f} s[/dim]")
