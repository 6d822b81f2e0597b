"""Two signals of how a text was written, which README.md compares with `written`."""

from typing import ClassVar

import numpy as np

from dise_core import Confidence, Plan, Score, Scorer, Selector, TokenSequence, hookimpl

QUARTER = 0.25


class Late(Scorer):
    """Minus the mean entropy, in nats, of the tokens of the last quarter of the steps."""

    needs_writing: ClassVar[bool] = True
    reads_end: ClassVar[bool] = False
    default_selector: ClassVar[str] = "response-text"
    recorded: ClassVar[tuple[Confidence, ...]] = ("entropy",)

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        """Return the score, at no pass."""
        yield from ()
        writing = sequence.own_writing()
        selected = selector.select(sequence) & (writing.steps >= 0)
        num_steps = writing.steps[selected].max(initial=-1) + 1
        late = writing.steps >= num_steps - np.ceil(QUARTER * num_steps)
        positions = np.flatnonzero(selected & late)
        if len(positions) == 0:
            return Score.empty()
        return Score(float(np.mean(writing.confidence("entropy")[positions])), positions)


class Rate(Scorer):
    """Tokens a forward."""

    needs_writing: ClassVar[bool] = True
    reads_end: ClassVar[bool] = False
    default_selector: ClassVar[str] = "response-text"

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        """Return the score, at no pass."""
        yield from ()
        steps = sequence.own_writing().steps
        positions = np.flatnonzero(selector.select(sequence) & (steps >= 0))
        if len(positions) == 0:
            return Score.empty()
        return Score(len(positions) / len(np.unique(steps[positions])), positions)


@hookimpl
def dise_scorers() -> dict[str, type[Scorer]]:
    """Return the scorers by name."""
    return {"late": Late, "rate": Rate}
