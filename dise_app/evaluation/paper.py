"""The paper's own figures, for comparison with ours. Source: its tables for LLaDA-Instruct-8B."""

from __future__ import annotations

LENGTHS = (128, 256, 512)

Figures = dict[str, dict[str, tuple[float, ...]]]

AUROC: Figures = {
    "countdown": {
        "mc:response:num_samples=1": (0.524, 0.520, 0.528),
        "mc:response:num_samples=32": (0.595, 0.534, 0.558),
        "dise:full": (0.616, 0.672, 0.698),
        "dise:last-10": (0.578, 0.521, 0.622),
        "ar-perplexity": (0.574, 0.419, 0.392),
    },
    "gsm8k": {
        "mc:response:num_samples=1": (0.539, 0.513, 0.540),
        "mc:response:num_samples=32": (0.590, 0.552, 0.595),
        "dise:full": (0.597, 0.585, 0.560),
        "dise:last-10": (0.633, 0.644, 0.658),
        "ar-perplexity": (0.675, 0.605, 0.577),
    },
    "math500": {
        "mc:response:num_samples=1": (0.497, 0.541, 0.532),
        "mc:response:num_samples=32": (0.528, 0.578, 0.531),
        "dise:full": (0.514, 0.555, 0.517),
        "dise:last-10": (0.611, 0.634, 0.604),
        "ar-perplexity": (0.575, 0.637, 0.551),
    },
    "svamp": {
        "mc:response:num_samples=1": (0.563, 0.575, 0.509),
        "mc:response:num_samples=32": (0.616, 0.551, 0.647),
        "dise:full": (0.665, 0.549, 0.571),
        "dise:last-10": (0.688, 0.692, 0.755),
        "ar-perplexity": (0.686, 0.650, 0.590),
    },
}
"""ROC-AUC by data set, scorer and generation length."""

BEST_OF_5: Figures = {
    "countdown": {"dise:full": (0.3086, 0.2852, 0.2734), "dise:last-10": (0.3086, 0.2422, 0.2734)},
    "gsm8k": {"dise:full": (0.7187, 0.7976, 0.7953), "dise:last-10": (0.7301, 0.8241, 0.8302)},
    "math500": {"dise:full": (0.2720, 0.3460, 0.3420), "dise:last-10": (0.2980, 0.3460, 0.3820)},
    "svamp": {"dise:full": (0.8767, 0.8533, 0.8700), "dise:last-10": (0.8833, 0.8700, 0.9000)},
}
"""Share solved by the best-scored of 5 answers, by data set, scorer and generation length."""

LENGTH: Figures = {
    "countdown": {
        "base": (0.2617, 0.1523, 0.1250),
        "max": (0.2500, 0.1641, 0.1562),
        "flexible": (0.2773, 0.1836, 0.1562),
    },
    "gsm8k": {
        "base": (0.6801, 0.7665, 0.7923),
        "max": (0.6929, 0.7680, 0.7885),
        "flexible": (0.7096, 0.7968, 0.7930),
    },
    "math500": {
        "base": (0.2620, 0.3280, 0.3680),
        "max": (0.2560, 0.3160, 0.3640),
        "flexible": (0.2600, 0.3360, 0.3660),
    },
    "svamp": {
        "base": (0.8467, 0.8500, 0.8367),
        "max": (0.8533, 0.8467, 0.8300),
        "flexible": (0.8733, 0.8600, 0.8433),
    },
}
"""Share solved at a fixed base length, at base length + M_max, and by DiSE-flexible with K = 4,
D = 20; by base length.
"""

LIKELIHOOD = {
    "arc-challenge": {
        "mc:response:num_samples=1": 0.306,
        "mc:response:num_samples=32": 0.478,
        "dise:prompt-last-2": 0.542,
        "ar-perplexity": 0.530,
    },
    "gpqa": {
        "mc:response:num_samples=1": 0.212,
        "mc:response:num_samples=32": 0.286,
        "dise:prompt-last-7+response-first-2": 0.301,
        "ar-perplexity": 0.304,
    },
}
"""Share of questions whose likeliest candidate is right."""


def figure_of(table: Figures, dataset: str, label: str, max_tokens: int) -> float | None:
    """Return the paper's figure for this cell; None if it has none."""
    name = dataset.removesuffix("-short").removesuffix("-answers")
    row = table.get(name, {}).get(label)
    return row[LENGTHS.index(max_tokens)] if row and max_tokens in LENGTHS else None


def length_figure_of(dataset: str, variant: str, max_iterations: int = 10) -> float | None:
    """Return the paper's figure for a length controller as `dise eval length` names it; None if it
    has none.
    """
    for base in LENGTHS:
        kinds = {
            f"fixed, {base}": "base",
            f"fixed, {base + max_iterations}": "max",
            f"dise-flexible from {base}, K = 4, D = 20": "flexible",
        }
        if variant in kinds:
            return figure_of(LENGTH, dataset, kinds[variant], base)
    return None
