"""Answers on the terminal, each token coloured by its probability."""

import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from rich.console import Console
from rich.text import Text

from dise_app.terminal.progress import close, in_order, progress_bar
from dise_app.terminal.styles import SHADES, printable, shade
from dise_core import LLM, CompletionOutput, Plan, RequestOutput, Token

T = TypeVar("T")

MAX_VALUE = 40
"""Characters of a field's value in a line."""

FORCED = "the constraint forced every token that is selected, so the score is 0"


def show(
    llm: LLM,
    records: Sequence[T],
    plan_of: Callable[[T], Plan[RequestOutput]],
    as_json: bool,
    shows_seed: bool = False,
) -> None:
    """Print the answers. Report failures among several, then raise typer.Exit(1)."""
    console, answers, num_failed = Console(highlight=False, emoji=False), list[RequestOutput](), 0
    with progress_bar(len(records), console if console.is_terminal else None) as advance:
        outcomes = in_order(llm, records, plan_of, advance)
        for number, (_, outcome) in enumerate(outcomes, start=1):
            if outcome.error is not None and len(records) > 1:
                num_failed += 1
                print(f"dise: prompt {number}: {outcome.error}", file=sys.stderr)
                continue
            answer = outcome.unwrap()
            if as_json:
                line = json.dumps(answer.to_dict(), ensure_ascii=False, allow_nan=False)
                console.print(Text(line), soft_wrap=True)
            else:
                show_answer(console, answer, shows_seed=shows_seed)
                answers.append(answer)
    show_legend(console, answers)
    close(len(records) - num_failed, num_failed)


def show_answer(
    console: Console, answer: RequestOutput, verdict: str = "", shows_seed: bool = False
) -> None:
    """Print one request's outputs, best first, and their cost."""
    if answer.prompt:
        console.print(Text(printable(answer.prompt), style="bold"), soft_wrap=True)
    for output in answer.outputs:
        _show_output(console, output, verdict)
    if reason := next((output.uncalibrated for output in answer.outputs), None):
        why = Text(f"  no probability of being right: {printable(reason)}", style="dim")
        _print_folded(console, why)
    usage = answer.usage
    passes = "1 forward pass" if usage.nfe == 1 else f"{usage.nfe} forward passes"
    if answer.is_approximate:
        computed = f"computed to {usage.nfe_computed:.1f}"
        passes += f", {computed} (cache {answer.cache}: the text is approximate)"
    seed = f", seed {answer.seed}" if shows_seed else ""
    console.print(f"  [dim]{passes}, {usage.seconds:.2f} s{seed}[/dim]")


def _show_output(console: Console, output: CompletionOutput, verdict: str) -> None:
    console.print(Text("  ").append_text(coloured(output)), soft_wrap=True)
    ending = f", {output.finish_reason}" if output.finish_reason else ""
    tokens = _counted(output.score.num_positions, "token")
    how = f"({output.scorer}, {output.selector}, {tokens}{ending})"
    if chance := chance_text(output):
        console.print(f"  {chance}", soft_wrap=True)
    below = f"  [dim]{score_text(output)} {how}[/dim]{verdict}"
    _print_folded(console, Text.from_markup(below, emoji=False))
    if output.score.under == "forced":
        _print_folded(console, Text(f"  {FORCED}", style="dim"))
    for line in field_lines(output):
        console.print(line, soft_wrap=True)
    if output.explanation is not None:
        from dise_app.terminal.explained import show_explanation

        show_explanation(console, output.explanation)
    if output.reviser is not None:
        console.print(f"  [dim]{revision_text(output)}[/dim]", soft_wrap=True)
    if emptiness := empty_text(output):
        _print_folded(console, Text(f"  {emptiness}", style="yellow"))


def _print_folded(console: Console, text: Text) -> None:
    """Print a line, on a terminal folded between words and indented by four."""
    is_folded = console.is_terminal and text.cell_len > console.width
    for number, line in enumerate(text.wrap(console, console.width - 4) if is_folded else [text]):
        line.rstrip()
        console.print(Text("    " * (number > 0)).append_text(line), soft_wrap=True)


def show_gaps(console: Console, texts: Sequence[str], answers: Sequence[RequestOutput]) -> None:
    """Print a text with its gaps filled by the best answers, then each gap's outputs. texts: in
    turns what was given and what fills a gap.
    """
    text = Text()
    text.append(printable(texts[0]), style="bold")
    for answer, filled, piece in zip(answers, texts[1::2], texts[2::2], strict=True):
        output = answer.outputs[0]
        is_whole = filled.endswith(output.text)
        text.append(printable(filled.removesuffix(output.text) if is_whole else filled))
        text.append_text(coloured(output) if is_whole else Text())
        text.append(printable(piece), style="bold")
    console.print(text, soft_wrap=True)
    for answer in answers:
        show_answer(console, replace(answer, prompt=None))
    show_legend(console, answers)


def coloured(output: CompletionOutput) -> Text:
    """Return the output's text, which ends before a stop text, each token in the colour of its
    probability, the selected ones underlined. A character of several tokens has the
    colour of the least probable. In a JSON answer each value has the colour of its score,
    and an abstained one is struck out.
    """
    text, group = Text(), list[Token]()
    for token in output.tokens:
        if token.is_end:
            continue
        group.append(token)
        if token.text:
            logprobs = [part.logprob for part in group if part.logprob is not None]
            is_selected = any(part.selected for part in group)
            style = "" if output.fields else shade(min(logprobs, default=None))
            style += " underline" if is_selected else ""
            text.append(printable(token.text), style=style)
            group = []
    for value in output.fields.values():
        if value.is_leaf:
            text.stylize(shade(value.score) + " strike" * bool(value.abstained), *value.span)
    return text[: len(output.text)]


def empty_text(output: CompletionOutput) -> str:
    """Return why a written answer is empty, and what may help; "" for any other."""
    if output.finish_reason is None or output.text or not output.tokens:
        return ""
    if not all(token.is_end for token in output.tokens):
        return "The answer is empty: a stop text stands at its beginning; leave out that --stop."
    return (
        "The answer is empty: the model wrote end tokens alone. A smaller --max-tokens or "
        "--block-length may help, or --unmasking-setting confidence_eos_eot_inf=true, which "
        "writes end tokens last."
    )


def field_lines(output: CompletionOutput) -> list[Text]:
    """Return a line for each value of a JSON answer: its path, the value, and the
    probability that its score is the logarithm of, in percent.
    """
    leaves = {path or "(whole)": field for path, field in output.fields.items() if field.is_leaf}
    values = [json.dumps(field.value, ensure_ascii=False) for field in leaves.values()]
    values = [v if len(v) <= MAX_VALUE else f"{v[: MAX_VALUE - 3]}..." for v in values]
    widths = [min(max(map(len, column), default=0), MAX_VALUE) for column in (leaves, values)]
    lines = []
    for (path, field), value in zip(leaves.items(), values, strict=True):
        share = "no other is valid" if field.forced else "no score"
        share = share if field.score is None else _rounded(math.exp(field.score))
        chance = "" if field.probability is None else f", {_likely(field.probability)}"
        verdict = chance + ", abstained" * bool(field.abstained)
        line = Text(f"  {printable(path):{widths[0]}} {printable(value):{widths[1]}}  ")
        lines.append(line.append(share, style=shade(field.score)).append(verdict))
    return lines


def score_text(output: CompletionOutput) -> str:
    """Return the value, and its standard error and probability of a token, if any."""
    if not math.isfinite(output.score.value):
        return "no score: nothing is selected"
    error, probability = output.score.standard_error, output.score.token_probability
    spread = f" ± {error:.4f}" if error is not None else ""
    share = f", {_share(probability)} a token" if probability else ""
    return f"score {output.score.value:.4f}{spread}{share}{_written_text(output)}"


def _written_text(output: CompletionOutput) -> str:
    """Return how sure the model was as it wrote the scored tokens, if known."""
    if output.written is None or output.scorer == "written":
        return ""
    return f"; written {_share(math.exp(output.written))}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _share(probability: float) -> str:
    """Return a probability in percent, as 100% only if it is 1."""
    return ">99.9%" if 0.9995 <= probability < 1 else f"{probability:.1%}"


def revision_text(output: CompletionOutput) -> str:
    """Return how many tokens the reviser changed, and what it judged by."""
    rounds = _counted(len(output.revisions), "round")
    accepted = [revision for revision in output.revisions if revision.is_accepted]
    if not accepted:
        return f"{output.reviser}: unchanged after {rounds}"
    tokens = _counted(sum(revision.num_changed for revision in accepted), "token")
    before, after = accepted[0].score_before, accepted[-1].score_after
    return f"{output.reviser}: {tokens} changed in {rounds}, {before:.4f} to {after:.4f}"


def chance_text(output: CompletionOutput) -> str:
    """Return the probability of being right; "" without a calibration."""
    text = "" if output.probability is None else _likely(output.probability)
    if output.abstained:
        text += "; " * bool(text) + "[bold]abstained[/bold], as it is below the threshold"
    return text


def _likely(probability: float) -> str:
    return f"likely to be right: {_rounded(probability)}"


def _rounded(probability: float) -> str:
    """Return whole percents, but 0 or 100 only where they are exact."""
    nearly = "<1%" if 0 < probability < 0.005 else ">99%" if 0.995 < probability < 1 else ""
    return nearly or f"{probability:.0%}"


def show_legend(console: Console, answers: Sequence[RequestOutput]) -> None:
    """Explain the colours and underlines of the answers, if they have any."""
    outputs = [output for answer in answers for output in answer.outputs]
    if console.color_system is None or not any(map(_is_coloured, outputs)):
        return
    plain = Text("underlined: what the score looks at", style="dim")
    is_mean = all(map(_is_mean_of_underlined, outputs))
    console.print(plain if console.no_color else legend(is_mean))


def legend(is_mean: bool = True) -> Text:
    """Return the legend of the colours, in two lines. is_mean: the score is the
    underlined tokens' mean.
    """
    text = Text("probability of writing the token again: ", style="dim")
    for minimum, colour in SHADES:
        text.append(f"≥ {minimum:.0%} " if minimum else "less", style=f"not dim {colour}")
    underlined = "the score is their mean log" if is_mean else "what the score looks at"
    return text.append(f"\nunderlined: {underlined}", style="dim")


def _is_coloured(output: CompletionOutput) -> bool:
    has_logprobs = any(t.logprob is not None and not t.is_end for t in output.tokens)
    return has_logprobs or len(output.fields) > 0


def _is_mean_of_underlined(output: CompletionOutput) -> bool:
    selected = (token.logprob for token in output.tokens if token.selected)
    logprobs = [logprob for logprob in selected if logprob is not None]
    num_written = sum(len(token.text) for token in output.tokens if not token.is_end)
    is_cut = len(output.text) < num_written  # some of the underlined may not be shown
    if is_cut or not logprobs or len(logprobs) < output.score.num_positions:
        return False
    mean = sum(logprobs) / len(logprobs)
    return math.isclose(mean, output.score.value, rel_tol=1e-3, abs_tol=1e-3)
