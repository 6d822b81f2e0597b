"""The figures of an experiment as one tidy table: in JSON, in Markdown and as a plot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from dise_eval.statistics.resampling import Estimate

Cell = str | int | float | Estimate | None
"""A figure; None or NaN for one that is undefined."""

MAX_PLAIN = 3
"""Figures in a row on the terminal, beside its name."""

HEADS = {
    **{"nfe": "NFE", "auroc": "ROC-AUC", "prr": "PRR", "aurc": "AURC", "eaurc": "E-AURC"},
    **{"augrc": "AUGRC", "ece": "ECE", "js": "JS", "brier": "Brier"},
}


@dataclass(frozen=True, slots=True)
class FigureTable:
    """Rows of figures by column. index: the columns whose texts name a row."""

    index: tuple[str, ...]
    rows: Sequence[Mapping[str, Cell]]

    def name_of(self, row: Mapping[str, Cell]) -> str:
        if self.index[0] == "minus":
            return f"{row[self.index[1]]} minus {row['minus']}"
        return ", ".join(str(row[column]) for column in self.index if row[column] != "all")

    def has(self, column: str) -> bool:
        """Return whether a row has a figure in the column."""
        return any(_is_defined(row.get(column)) for row in self.rows)

    def to_dict(self) -> dict[str, JsonValue]:
        """Return the figures as a tree with a level for each column of the index."""
        tree: dict[str, JsonValue] = {}
        for row in self.rows:
            place = tree
            for column in self.index:
                inner = place.setdefault(str(row[column]), {})
                assert isinstance(inner, dict)
                place = inner
            place |= {name: _json(row[name]) for name in row if name not in self.index}
        return tree

    def plain(self, columns: Sequence[str], width: int) -> str:
        """Return the table in aligned columns: the rows' names, and of these columns, or
        of all that have a figure, the first MAX_PLAIN, or as many as the width takes.
        """
        figures = [name for name in columns or self._names() if self.has(name)][:MAX_PLAIN]
        heads = [self.index[-1], *figures]
        lines = [
            [*map(_head, heads)],
            *([self.name_of(row), *(text(row.get(name)) for name in figures)] for row in self.rows),
        ]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        while len(widths) > 2 and sum(widths) + 2 * (len(widths) - 1) > width:
            widths.pop()
        aligned = (
            [cell.rjust(size) if at else cell.ljust(size) for at, (cell, size) in enumerate(cells)]
            for cells in (zip(line, widths, strict=False) for line in lines)
        )
        return "\n".join("  ".join(cells).rstrip() for cells in aligned)

    def _names(self) -> list[str]:
        """Return the columns of figures, in order."""
        names = dict.fromkeys(name for row in self.rows for name in row)
        return [name for name in names if name not in self.index]

    def markdown(self, columns: Sequence[str] = ()) -> str:
        """Return the table with these columns, or with all that have a figure."""
        figures = [name for name in columns or self._names() if self.has(name)]
        heads = [*self.index, *figures]
        marks = ["---"] * len(self.index) + ["---:"] * len(figures)
        lines = [
            [_head(name) for name in heads],
            marks,
            *([text(row.get(name)) for name in heads] for row in self.rows),
        ]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _is_defined(cell: Cell) -> bool:
    value = cell.value if isinstance(cell, Estimate) else cell
    return value is not None and not (isinstance(value, float) and math.isnan(value))


def _json(cell: Cell) -> JsonValue:
    if isinstance(cell, Estimate):
        names = ("value", "low", "high", "num_questions")
        return {name: _json(getattr(cell, name)) for name in names}
    return cell if _is_defined(cell) else None


def text(cell: Cell) -> str:
    """Return a figure as a table in Markdown shows it."""
    if cell is None or not _is_defined(cell):
        return "-"
    if isinstance(cell, Estimate):
        sign = "+" if cell.is_difference else ""
        value, low, high = (
            "-" if math.isnan(end) else f"{end:{sign}.3f}"
            for end in (cell.value, cell.low, cell.high)
        )
        return value if low == high == "-" else f"{value} [{low}, {high}]"
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def _head(name: str) -> str:
    return " ".join(HEADS.get(word, word) for word in name.split("_"))
