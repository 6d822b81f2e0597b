"""Answers on the terminal: each token coloured by its probability of being regenerated."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from dise_core.outputs import CompletionOutput, RequestOutput
from dise_core.reading import Plan
from dise_core.records import Record

if TYPE_CHECKING:
    from dise_core.llm import LLM

SHADES = ((0.9, "green"), (0.5, "yellow"), (0.1, "dark_orange"), (0.0, "red"))
"""The least probability for each colour."""


def show(
    llm: LLM,
    records: Sequence[Record],
    plan_of: Callable[[Record], Plan[RequestOutput]],
    as_json: bool,
    shows_seed: bool = False,
) -> None:
    """Run the records' plans and print the answers in order. Raises the first error after printing
    the answers before it.

    shows_seed: print the seed too, for answers that depend on it.
    """
    from dise_app.cli.progress import progress_bar

    with progress_bar(len(records)) as advance:
        outcomes = []
        for outcome in llm.run(plan_of(record) for record in records):
            outcomes.append(outcome)
            advance(1)
    console = Console(highlight=False)
    for outcome in sorted(outcomes, key=lambda outcome: outcome.index):
        answer = outcome.unwrap()
        if as_json:
            print(json.dumps(answer.to_dict(), ensure_ascii=False, allow_nan=False))
        else:
            show_answer(console, answer, shows_seed=shows_seed)
    if not as_json and any(is_coloured(outcome.unwrap()) for outcome in outcomes):
        console.print(legend())


def show_answer(
    console: Console, answer: RequestOutput, verdict: str = "", shows_seed: bool = False
) -> None:
    """Print one request's outputs, best first, and their cost."""
    if answer.prompt is not None:
        console.print(f"[bold]{escape(printable(answer.prompt))}[/bold]")
    for output in answer.outputs:
        console.print(Text("  ").append_text(coloured(output)))
        ending = f", {output.finish_reason}" if output.finish_reason else ""
        console.print(
            f"  [dim]{score_text(output)} ({output.scorer}, {output.selector}, "
            f"{output.score.num_positions} tokens"
            f"{ending})[/dim]{chance_text(output)}{verdict}"
        )
        if output.reviser is not None:
            console.print(f"  [dim]{revision_text(output)}[/dim]")
    usage = answer.usage
    passes = "1 forward pass" if usage.nfe == 1 else f"{usage.nfe} forward passes"
    if answer.is_approximate:
        passes += (
            f", computed to {usage.nfe_computed:.1f} (cache {answer.cache}: the text is "
            "approximate)"
        )
    seed = f", seed {answer.seed}" if shows_seed else ""
    console.print(f"  [dim]{passes}, {usage.seconds:.2f} s{seed}[/dim]")


def coloured(output: CompletionOutput) -> Text:
    """Return the response without end tokens, each token in the colour of its probability, the
    selected ones underlined.
    """
    text = Text()
    for token in output.tokens:
        if not token.is_end:
            text.append(
                printable(token.text),
                style=shade(token.logprob) + (" underline" if token.selected else ""),
            )
    return text


def printable(text: str) -> str:
    """Return the text with control characters, which could drive the terminal, replaced; line
    breaks and tabs stay.
    """
    return "".join(
        c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text
    )


def shade(logprob: float | None) -> str:
    """Return the colour of a token with this log-probability of being regenerated; "" for None."""
    if logprob is None:
        return ""
    probability = math.exp(logprob)
    return next(colour for least, colour in SHADES if probability >= least)


def score_text(output: CompletionOutput) -> str:
    """Return the score as text: the value, with its standard error if it has one."""
    if not math.isfinite(output.score.value):
        return "no score: nothing is selected"
    error = output.score.standard_error
    return f"score {output.score.value:.4f}" + (f" ± {error:.4f}" if error is not None else "")


def revision_text(output: CompletionOutput) -> str:
    """Return what the reviser did as text: the tokens that it changed and what it judged by, or
    that the text stayed as it was written.
    """
    rounds = f"{len(output.revisions)} round{'' if len(output.revisions) == 1 else 's'}"
    accepted = [revision for revision in output.revisions if revision.is_accepted]
    if not accepted:
        return f"{output.reviser}: unchanged after {rounds}"
    num_changed = sum(revision.num_changed for revision in accepted)
    tokens = "1 token" if num_changed == 1 else f"{num_changed} tokens"
    before, after = accepted[0].score_before, accepted[-1].score_after
    return f"{output.reviser}: {tokens} changed in {rounds}, {before:.4f} to {after:.4f}"


def chance_text(output: CompletionOutput) -> str:
    """Return the probability of being right as text, and whether the answer is below the
    calibration's threshold; "" without a calibration.
    """
    chance, below = output.probability, output.abstained
    shown = "" if chance is None else f" {chance:.1%} likely to be right"
    return shown + (" [bold]abstained: below the threshold[/bold]" if below else "")


def is_coloured(answer: RequestOutput) -> bool:
    """Return whether the probability of any token is reported."""
    return any(token.logprob is not None for output in answer.outputs for token in output.tokens)


def legend() -> Text:
    """Return the legend that explains the colours."""
    text = Text("probability of writing the token again: ", style="dim")
    for least, colour in SHADES:
        text.append(f"≥ {least:.0%} " if least else "less", style=colour)
    return text.append("; underlined: the score is their mean log", style="dim")
