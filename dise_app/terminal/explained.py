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
from dise_core.scoring.explanation import OWN, ExplainedRead, ExplainedToken, Explanation
from dise_core.scoring.formula import told

MOST_READS = 12
"""Reads that are shown, each in a row; `--json` tells all."""

MOST_SHOWN = 32
"""Characters that are shown of tokens in one cell."""

WIDE = 10_000
"""Columns of a pipe, where nothing is folded."""


def show_explanation(console: Console, explanation: Explanation) -> None:
    """Print an explanation: sentences, then a table of the Reads and one of the tokens."""
    _print(console, Text(explanation.formula, style="bold"))
    sentences = [f"The scorer says: {explanation.about}", *explanation.notes]
    for sentence in filter(None, sentences):
        _print(console, Text(printable(sentence)))
    if explanation.reads:
        _print(console, _reads(explanation.reads))
    if (more := len(explanation.reads) - MOST_READS) > 0:
        _print(console, Text(f"and {more} more Reads, which --json tells", style="dim"))
    if explanation.tokens:
        _print(console, _tokens(explanation.tokens))


def _print(console: Console, what: Text | Table) -> None:
    """Print it indented: on a terminal folded, in a pipe whole and plain."""
    indented = Padding(what, (0, 0, 0, 4), expand=False)
    if console.is_terminal:
        console.print(indented)
        return
    plain = Console(file=io.StringIO(), width=WIDE, color_system=None)
    with plain.capture() as printed:
        plain.print(indented)
    for line in printed.get().splitlines():
        console.print(Text(line.rstrip()), soft_wrap=True)


def _reads(reads: Sequence[ExplainedRead]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("Read", "of", "asked for", "at", "known", "new", "sum"):
        is_number = heading in ("Read", "known", "new", "sum")
        table.add_column(heading, justify="right" if is_number else "left")
    for number, read in enumerate(reads[:MOST_READS], start=1):
        asked = read.asks + ", each as if it alone were masked" * read.is_shadow
        computed = len(read.positions) - read.num_known
        total = told(sum(read.logprobs)) if read.asks.startswith(OWN) else ""
        where = "the masks" if read.positions == read.masked else _ranges(read.positions)
        table.add_row(
            str(number), _text_of(read), escape(asked), where,
            str(read.num_known), str(computed), total,
        )  # fmt: skip
    return table


def _text_of(read: ExplainedRead) -> str:
    """Say which text is read, and where it is masked."""
    count = len(read.masked)
    masks = "no mask" if not count else f"{count} mask{'s' * (count > 1)} at {_ranges(read.masked)}"
    judge = "the judge's " * (read.model == "judge")
    return f"{judge}{read.num_tokens} tokens, {masks}" + ", guided" * read.is_guided


def _ranges(positions: Sequence[int]) -> str:
    """Return positions as "3-5, 8"."""
    runs = (
        [at for _, at in run]
        for _, run in groupby(enumerate(positions), lambda pair: pair[1] - pair[0])
    )
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _tokens(tokens: Sequence[ExplainedToken]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    is_written = any(token.step is not None for token in tokens)
    headings = ["at", "token", "log-prob", "Read", *["written", "step"] * is_written, "why"]
    for heading in headings:
        is_number = heading in ("log-prob", "written", "step")
        table.add_column(heading, justify="right" if is_number else "left")
    for group in _alike(tokens):
        cells = list(_cells(group))
        kept = [*cells[:4], *cells[4:6] * is_written, cells[6]]
        table.add_row(*kept, style="" if group[0].counts else "dim")
    return table


def _alike(tokens: Iterable[ExplainedToken]) -> Iterator[list[ExplainedToken]]:
    """Yield runs of tokens that are neither asked for nor count, for one reason; others alone."""
    for key, run in groupby(tokens, _key):
        group = list(run)
        yield from [group] if key else ([token] for token in group)


def _key(token: ExplainedToken) -> str:
    return "" if token.counts or token.reads else token.why


def _cells(group: Sequence[ExplainedToken]) -> Iterator[Text]:
    first, texts = group[0], [token.text for token in group]
    yield Text(_ranges([token.position for token in group]))
    is_one = len(set(texts)) == 1
    text = json.dumps(first.text if is_one else "".join(texts), ensure_ascii=False)
    text = text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 4]}..."
    yield Text(printable(text) + f" x{len(group)}" * (is_one and len(group) > 1))
    yield _number(first.logprob)
    yield Text(_readers(first.reads))
    yield _number(first.written if len(group) == 1 else None)
    yield Text(_steps([token.step for token in group]))
    yield Text(printable(first.why))


def _number(logprob: float | None) -> Text:
    return Text("") if logprob is None else Text(told(logprob), style=shade(logprob))


def _readers(reads: Sequence[int]) -> str:
    return _ranges(reads) if len(reads) < 4 else f"mean of {len(reads)}"


def _steps(steps: Sequence[int | None]) -> str:
    known = [step for step in steps if step is not None]
    if not known:
        return "given"
    return str(known[0]) if len(steps) == 1 else f"{min(known)}-{max(known)}"
