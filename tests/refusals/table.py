"""A table of refusals, and what holds for every one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pytest

from dise_core import LLM, InputError
from dise_core.testing import ToyPredictor

Row = tuple[Any, str | None, str]
"""What is given; the parameter that the refusal names, several joined by commas; words of it."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a door said. parameter: the one that it names beside its words."""

    text: str
    parameter: str | None

    @classmethod
    def of(cls, error: BaseException) -> Self:
        return cls(str(error), getattr(error, "parameter", None))


Refuse = Callable[[Any, pytest.FixtureRequest], Refusal]
"""Give a door what a row holds, and return its refusal."""


@dataclass(frozen=True, slots=True)
class Table:
    """What one door refuses, and how it is asked."""

    door: str
    refuse: Refuse
    rows: Sequence[Row]


def raised(call: Callable[[Any], object], error: type[Exception] = InputError) -> Refuse:
    """Return what calls a function of Python's door with what a row holds."""

    def refuse(given: Any, _: pytest.FixtureRequest) -> Refusal:
        with pytest.raises(error) as caught:
            call(given)
        return Refusal.of(caught.value)

    return refuse


def asked(
    make: Callable[[], ToyPredictor], ask: Callable[[LLM, Any], object], **options: Any
) -> Refuse:
    """Return what asks a model, which must make no pass. options: those of LLM."""

    def refuse(given: Any, _: pytest.FixtureRequest) -> Refusal:
        predictor = make()
        with pytest.raises(InputError) as caught:
            ask(LLM(predictor, **options), given)
        assert predictor.batches == []
        return Refusal.of(caught.value)

    return refuse


def assert_sentence(text: str) -> None:
    """Assert that a refusal is one line that somebody wrote: it begins with a word, a number or
    what it quotes, says something of it, and ends where a sentence may.
    """
    assert text.isprintable(), "a refusal is one line"
    assert re.match(r"""[\w'"(/\[*.<-]""", text), text
    assert len(re.findall(r"[A-Za-z]{2,}", text)) >= 3, text
    assert re.search(r"""[\w.?!)\]}'">*/…%$]$""", text), text
    for foreign in ("Traceback", "<class ", " object at 0x", "Error('", "pydantic"):
        assert foreign not in text, text


def assert_named(parameter: str, text: str) -> None:
    """Assert that the words name it too, for whoever sees them alone."""
    *_, name = (part for part in parameter.split(".") if not part.isdecimal())
    said = text.casefold()
    for word in re.split("[_ ]", name.casefold()):
        assert word.removesuffix("s") in said, (parameter, text)
