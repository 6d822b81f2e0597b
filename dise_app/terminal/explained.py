"""Why a score is what it is, on the terminal: its formula, its Reads, its tokens."""

import io
import json
from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dise_app.terminal.styles import printable, shade
from dise_core.scoring.explaining import (
    OWN,
    ExplainedRead,
    ExplainedToken,
    Explanation,
    number_text,
)

MAX_READS = 12
"""Reads that are shown; `--json` has all."""

MAX_CELL = 32
"""Characters of the tokens in one cell."""

TEXTS = {"at", "token", "why"}
"""Headings of columns that are aligned to the left."""


def show_explanation(console: Console, explanation: Explanation) -> None:
    """Print an explanation: sentences, a line for each Read and a table of the tokens."""
    _print(console, Text(explanation.formula, style="bold"))
    about, reads = explanation.about and f"Scorer: {explanation.about}", explanation.reads
    for sentence in filter(None, [about, *explanation.notes]):
        _print(console, Text(printable(sentence)))
    for number, read in enumerate(reads[:MAX_READS], start=1):
        _print(console, Text(f"Read {number}: {_read(read)}"))
    if len(reads) > MAX_READS:
        more = f"and {len(reads) - MAX_READS} more Reads: see --json"
        _print(console, Text(more, style="dim"))
    if explanation.tokens:
        _print(console, _tokens(explanation.tokens))


def _print(console: Console, content: Text | Table) -> None:
    """Print it indented: on a terminal folded, in a pipe whole and plain."""
    indented = Padding(content, (0, 0, 0, 4), expand=False)
    if console.is_terminal:
        console.print(indented)
        return
    plain = Console(file=io.StringIO(), width=10_000, color_system=None)
    with plain.capture() as printed:
        plain.print(indented)
    for line in printed.get().splitlines():
        console.print(Text(line.rstrip()), soft_wrap=True)


def _read(read: ExplainedRead) -> str:
    num_masks, is_masked = len(read.masked), read.positions == read.masked
    masks = f"{num_masks} mask{'s' * (num_masks > 1)} at {_ranges(read.masked)}"
    return (
        "the judge's " * (read.model == "judge")
        + f"{read.num_tokens} tokens, {masks if num_masks else 'no mask'}"
        + ", guided" * read.is_guided
        + f"; predicts {read.asks} at {'the masks' if is_masked else _ranges(read.positions)}"
        + ", each masked alone" * read.is_shadow
        + (f"; {read.num_known} reused" if read.num_known else "")
        + (f"; sum {number_text(sum(read.logprobs))}" if read.asks == OWN else "")
    )


def _ranges(positions: Sequence[int]) -> str:
    """Return positions as "3-5, 8"."""
    runs = (
        [position for _, position in run]
        for _, run in groupby(enumerate(positions), lambda pair: pair[1] - pair[0])
    )
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _tokens(tokens: Sequence[ExplainedToken]) -> Table:
    """Return the table of tokens, without columns that are always empty."""
    groups = list(_alike(tokens))
    rows = [_cells(group) for group in groups]
    headings = [heading for heading in rows[0] if any(row[heading] for row in rows)]
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in TEXTS else "right")
    for group, row in zip(groups, rows, strict=True):
        style = "" if group[0].counts else "dim"
        table.add_row(*(row[heading] for heading in headings), style=style)
    return table


def _alike(tokens: Sequence[ExplainedToken]) -> Iterator[list[ExplainedToken]]:
    """Yield tokens alone, but those neither read nor counted in runs by reason."""
    for reason, run in groupby(tokens, lambda t: "" if t.counts or t.reads else t.why):
        group = list(run)
        yield from [group] if reason else ([token] for token in group)


def _cells(group: Sequence[ExplainedToken]) -> dict[str, Text]:
    """Return a row by heading."""
    first, texts = group[0], [token.text for token in group]
    is_same, num_reads = len(set(texts)) == 1, len(first.reads)
    text = json.dumps(texts[0] if is_same else "".join(texts), ensure_ascii=False)
    text = text if len(text) <= MAX_CELL else f"{text[: MAX_CELL - 4]}..."
    times = f" x{len(group)}" * (is_same and len(group) > 1)
    steps = sorted({token.step for token in group if token.step is not None})
    return {
        "at": Text(_ranges([token.position for token in group])),
        "token": Text(printable(text) + times),
        "log-prob": _number(first.logprob),
        "Read": Text(_ranges(first.reads) if num_reads < 4 else f"mean of {num_reads}"),
        "written": _number(first.written if len(group) == 1 else None),
        "step": Text("-".join(map(str, [*steps[:1], *steps[1:][-1:]]))),
        "weight": Text("" if first.weight is None else f"{first.weight:.4g}"),
        "why": Text(printable(first.why)),
    }


def _number(logprob: float | None) -> Text:
    return Text("") if logprob is None else Text(number_text(logprob), style=shade(logprob))
