"""A finished response with its evaluation."""

from dataclasses import dataclass
from typing import Literal

from dise_core.scoring.score import Evaluation
from dise_core.sequence import TokenSequence
from dise_core.writing.revisions import Revision


@dataclass(frozen=True, slots=True)
class LengthStep:
    """One iteration of a length controller: the response's tokens, score and NFE."""

    iteration: int
    num_tokens: int
    score: float
    nfe: int


@dataclass(frozen=True, slots=True, eq=False)
class Generation:
    """What a length controller returns: the chosen text, its evaluation, and its
    iterations.

    `finish_reason` None means "stop" if the text holds an end token or meets a
    constraint, else "length".
    """

    sequence: TokenSequence
    evaluation: Evaluation
    trace: tuple[LengthStep, ...] = ()
    stopped_by: str | None = None
    finish_reason: Literal["stop", "length"] | None = None
    revisions: tuple[Revision, ...] = ()
