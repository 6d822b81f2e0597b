"""Why a score is what it is, on the terminal: its formula, its Reads, its tokens."""

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dise_app.terminal.styles import printable, shade
from dise_core.scoring.explaining import number_text
from dise_core.scoring.explanation import OWN, ExplainedRead, ExplainedToken, Explanation

MAX_READS = 12
"""Reads in the table; `--json` has all."""

MAX_CELL = 32
"""Characters of the tokens in one cell."""

PIPE_WIDTH = 10_000
"""Columns of a pipe, where nothing is folded."""

NUMBERS = {"Read", "reused", "sum", "log-prob", "written", "step", "weight"}
"""Headings of columns that are aligned to the right."""


def show_explanation(console: Console, explanation: Explanation) -> None:
    """Print an explanation: sentences, a table of Reads and one of tokens."""
    _print(console, Text(explanation.formula, style="bold"))
    about = explanation.about and f"Scorer: {explanation.about}"
    for sentence in filter(None, [about, *explanation.notes]):
        _print(console, Text(printable(sentence)))
    if explanation.reads:
        _print(console, _reads(explanation.reads))
    if (num_more := len(explanation.reads) - MAX_READS) > 0:
        _print(console, Text(f"and {num_more} more Reads: see --json", style="dim"))
    if explanation.tokens:
        _print(console, _tokens(explanation.tokens))


def _print(console: Console, content: Text | Table) -> None:
    """Print it indented: on a terminal folded, in a pipe whole and plain."""
    indented = Padding(content, (0, 0, 0, 4), expand=False)
    if console.is_terminal:
        console.print(indented)
        return
    plain = Console(file=io.StringIO(), width=PIPE_WIDTH, color_system=None)
    with plain.capture() as printed:
        plain.print(indented)
    for line in printed.get().splitlines():
        console.print(Text(line.rstrip()), soft_wrap=True)


def _table(headings: Sequence[str], rows: Iterable[tuple[str, Sequence[Text | str]]]) -> Table:
    """Return a table of styled rows, without columns that are always empty."""
    rows = list(rows)
    used = [at for at in range(len(headings)) if any(cells[at] for _, cells in rows)]
    table = Table(box=None, pad_edge=False, header_style="dim")
    for at in used:
        table.add_column(headings[at], justify="right" if headings[at] in NUMBERS else "left")
    for style, cells in rows:
        table.add_row(*(cells[at] for at in used), style=style)
    return table


def _reads(reads: Sequence[ExplainedRead]) -> Table:
    rows = (("", _read(*numbered)) for numbered in enumerate(reads[:MAX_READS], start=1))
    return _table(("Read", "text", "predicts", "reused", "sum"), rows)


def _read(number: int, read: ExplainedRead) -> list[str]:
    num_masks, is_own = len(read.masked), read.asks.startswith(OWN)
    masks = f"{num_masks} mask{'s' * (num_masks > 1)} at {_ranges(read.masked)}"
    text = f"{read.num_tokens} tokens, {masks if num_masks else 'no mask'}"
    places = "the masks" if read.positions == read.masked else _ranges(read.positions)
    return [
        str(number),
        "the judge's " * (read.model == "judge") + text + ", guided" * read.is_guided,
        escape(f"{read.asks} at {places}" + ", each masked alone" * read.is_shadow),
        str(read.num_known or ""),
        number_text(sum(read.logprobs)) if is_own else "",
    ]


def _ranges(positions: Sequence[int]) -> str:
    """Return positions as "3-5, 8"."""
    runs = (
        [position for _, position in run]
        for _, run in groupby(enumerate(positions), lambda pair: pair[1] - pair[0])
    )
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _tokens(tokens: Sequence[ExplainedToken]) -> Table:
    headings = ("at", "token", "log-prob", "Read", "written", "step", "weight", "why")
    rows = (("" if group[0].counts else "dim", _cells(group)) for group in _alike(tokens))
    return _table(headings, rows)


def _alike(tokens: Iterable[ExplainedToken]) -> Iterator[list[ExplainedToken]]:
    """Yield tokens alone, but those neither read nor counted in runs by reason."""
    for reason, run in groupby(tokens, lambda t: "" if t.counts or t.reads else t.why):
        group = list(run)
        yield from [group] if reason else ([token] for token in group)


def _cells(group: Sequence[ExplainedToken]) -> list[Text]:
    first, is_single = group[0], len(group) == 1
    num_reads = len(first.reads)
    steps = sorted({token.step for token in group if token.step is not None})
    return [
        Text(_ranges([token.position for token in group])),
        Text(_text_of(group)),
        _number(first.logprob),
        Text(_ranges(first.reads) if num_reads < 4 else f"mean of {num_reads}"),
        _number(first.written if is_single else None),
        Text("-".join(map(str, [*steps[:1], *steps[1:][-1:]]))),
        Text("" if first.weight is None else f"{first.weight:.4g}"),
        Text(printable(first.why)),
    ]


def _text_of(group: Sequence[ExplainedToken]) -> str:
    texts = [token.text for token in group]
    is_same = len(set(texts)) == 1
    text = json.dumps(texts[0] if is_same else "".join(texts), ensure_ascii=False)
    text = text if len(text) <= MAX_CELL else f"{text[: MAX_CELL - 4]}..."
    return printable(text) + f" x{len(group)}" * (is_same and len(group) > 1)


def _number(logprob: float | None) -> Text:
    return Text("") if logprob is None else Text(number_text(logprob), style=shade(logprob))
