"""How texts and probabilities look on a terminal."""

import math

SHADES = ((0.9, "green"), (0.5, "yellow"), (0.1, "dark_orange"), (0.0, "red"))
"""The least probability for each colour."""


def printable(text: str) -> str:
    """Return the text without control characters, which could drive the terminal."""
    return "".join(
        c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text
    )


def shade(logprob: float | None) -> str:
    """Return the colour of a log-probability; "" for None."""
    if logprob is None:
        return ""
    probability = math.exp(logprob)
    return next(colour for minimum, colour in SHADES if probability >= minimum)
