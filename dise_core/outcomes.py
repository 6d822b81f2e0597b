"""What becomes of several requests: their answers in order, where a failed one either raises or is
an answer that holds its error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypeVar

from dise_core.engine import Outcome
from dise_core.errors import InputError, shown
from dise_core.outputs import RequestOutput, Usage

T = TypeVar("T")

OnError = Literal["raise", "return"]
"""raise: the first failed request's error, after all others are done. return: every request has an
answer, and that of a failed one has its `error` and no outputs.
"""


def check_on_error(given: object) -> None:
    """Raise InputError unless it is one of the two words."""
    if given not in ("raise", "return"):
        raise InputError(
            f"on_error must be 'raise' or 'return', not {shown(given, 40)}", "on_error"
        )


def results(outcomes: Iterable[Outcome[T]]) -> list[T]:
    """Return the results in the order of the requests, or raise the first one's error."""
    return [outcome.unwrap() for outcome in _in_order(outcomes)]


def answers(
    outcomes: Iterable[Outcome[RequestOutput]],
    on_error: OnError,
    model: str,
    prompts: Sequence[object] = (),
) -> list[RequestOutput]:
    """Return an answer to each request, in order, or raise what `results` raises. model, prompts:
    what an answer without outputs says that it was asked.
    """
    if on_error == "raise":
        return results(outcomes)
    return [_answer(outcome, model, prompts) for outcome in _in_order(outcomes)]


def _answer(
    outcome: Outcome[RequestOutput], model: str, prompts: Sequence[object]
) -> RequestOutput:
    if outcome.error is None:
        return outcome.unwrap()
    given = prompts[outcome.index] if prompts else None
    text = given if isinstance(given, str) else None
    usage = Usage(0, 0, 0, 0.0, outcome.seconds)
    return RequestOutput(text, (), model, (), usage, error=outcome.error)


def _in_order(outcomes: Iterable[Outcome[T]]) -> list[Outcome[T]]:
    return sorted(outcomes, key=lambda outcome: outcome.index)
