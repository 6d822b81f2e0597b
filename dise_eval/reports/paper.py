"""The paper's own figures, for comparison with ours."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

PAPER = "the_paper"


def paper_figure(figure: str, dataset: str, name: str) -> float | None:
    """Return the paper's figure of a contender by name; None if it has none."""
    dataset = dataset.removesuffix("-short").removesuffix("-answers")
    return _figures()[figure].get(dataset, {}).get(name)


@cache
def _figures() -> dict[str, dict[str, dict[str, float]]]:
    text = Path(__file__).with_name("paper.json").read_text(encoding="utf-8")
    figures: dict[str, dict[str, dict[str, float]]] = json.loads(text)
    return figures
