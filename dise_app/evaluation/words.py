"""What scorers and other contenders are called in pictures, and which of them are ours."""

from __future__ import annotations

import re
from typing import Literal

Family = Literal["ours", "baselines", "others"]

OURS = {"dise", "shadow", "interleaved", "greedy-path", "dise-flexible", "remask"}
BASELINES = {
    *("mc", "mc-llada", "mc-dream", "ar-perplexity"),
    *("greedy", "mean", "majority", "as", "best"),
    *("fixed", "until-end", "daedal"),
}
"""The first words of the names of scorers, of ways to choose an answer or spend forward passes, and
of length controllers."""

SCORERS = {
    "dise": "DiSE",
    "interleaved": "interleaved",
    "shadow": "shadow",
    "greedy-path": "greedy path",
    "mc": "Monte Carlo",
    "mc-llada": "LLaDA's Monte Carlo",
    "mc-dream": "Dream's Monte Carlo",
    "ar-perplexity": "auto-regressive judge",
}
SELECTORS = {
    r"full": "prompt and answer",
    r"prompt": "prompt",
    r"response": "answer with its end tokens",
    r"response-text": "answer",
    r"(first|last)-block": r"\1 block",
    r"first-blocks-(\d+)": r"first \1 blocks",
    r"(first|last)-(\d+)": r"\1 \2 tokens",
    r"mid-(\d+)": r"middle \1 tokens",
    r"prompt-last-(\d+)": r"last \1 tokens of the prompt",
    r"response-first-(\d+)": r"first \1 tokens of the answer",
}


def family_of(name: str) -> Family:
    """Return whether a contender is ours or a baseline; "others" for an oracle, and for plugins."""
    first = re.split(r"[:, ]", name, maxsplit=1)[0]
    return "ours" if first in OURS else "baselines" if first in BASELINES else "others"


def in_words(name: str) -> str:
    """Return a scorer's specification in words, "DiSE, last 10 tokens" for "dise:last-10"; any
    other name as it is.
    """
    scorer, _, rest = name.partition(":")
    if scorer not in SCORERS:
        return name
    selector, _, settings = rest.partition(":")
    told = [SCORERS[scorer], *filter(None, [" and ".join(map(_selected, selector.split("+")))])]
    return ", ".join([*told, *map(_set, filter(None, settings.split(",")))])


def _selected(name: str) -> str:
    for pattern, words in SELECTORS.items():
        if found := re.fullmatch(pattern, name):
            return re.sub(r"\b1 (token|block)s", r"\1", found.expand(words))
    return name


def _set(pair: str) -> str:
    name, _, value = pair.partition("=")
    samples = "1 sample" if value == "1" else f"{value} samples"
    return samples if name == "num_samples" else f"{name.replace('_', ' ')} = {value}"
