"""The paper's own figures, to stand beside ours. Source: its tables for LLaDA-Instruct-8B."""

from __future__ import annotations

LENGTHS = (128, 256, 512)

AUROC = {
    "countdown": {"dise:full": (0.616, 0.672, 0.698), "dise:last-10": (0.578, 0.521, 0.622)},
    "gsm8k": {"dise:full": (0.597, 0.585, 0.560), "dise:last-10": (0.633, 0.644, 0.658)},
    "math500": {"dise:full": (0.514, 0.555, 0.517), "dise:last-10": (0.611, 0.634, 0.604)},
    "svamp": {"dise:full": (0.665, 0.549, 0.571), "dise:last-10": (0.688, 0.692, 0.755)},
}
"""ROC-AUC by data set, scorer and generation length."""

BEST_OF_5 = {
    "countdown": {"dise:full": (30.86, 28.52, 27.34), "dise:last-10": (30.86, 24.22, 27.34)},
    "gsm8k": {"dise:full": (71.87, 79.76, 79.53), "dise:last-10": (73.01, 82.41, 83.02)},
    "math500": {"dise:full": (27.20, 34.60, 34.20), "dise:last-10": (29.80, 34.60, 38.20)},
    "svamp": {"dise:full": (87.67, 85.33, 87.00), "dise:last-10": (88.33, 87.00, 90.00)},
}
"""Accuracy of the best of 5 answers in percent."""


def figure_of(
    table: dict[str, dict[str, tuple[float, float, float]]], dataset: str, label: str, max_tokens: int
) -> float | None:
    """Return the paper's figure for this cell, None where it has none."""
    row = table.get(dataset.removesuffix("-short"), {}).get(label)
    return row[LENGTHS.index(max_tokens)] if row and max_tokens in LENGTHS else None
