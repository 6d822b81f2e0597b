"""A table of refusals, and what holds for every one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Self

import pytest
from _pytest.mark import ParameterSet

from dise import LLM
from dise_core import InputError
from dise_core.testing import ToyPredictor

Row = tuple[Any, str, str]
"""What is given; the parameter that the refusal names, several joined by commas, one that is
told by its value as NAME=VALUE; words of the refusal, joined by " … " where they stand apart."""


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


def rows_of(*doors: ModuleType) -> list[ParameterSet]:
    """Return what parametrizes a walk over the tables of those modules."""
    return [
        pytest.param(table, row, id=f"{table.door}-{number}")
        for door in doors
        for table in door.TABLES
        for number, row in enumerate(table.rows)
    ]


def assert_refused(table: Table, row: Row, request: pytest.FixtureRequest) -> None:
    """Assert that what a row holds is refused in one sentence, in its words, that names its
    parameter.
    """
    given, parameter, words = row
    refusal = table.refuse(given, request)
    assert_said(words, refusal.text)
    assert_sentence(refusal.text)
    assert_named(parameter, refusal)


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


def assert_said(words: str, text: str) -> None:
    """Assert that the words stand in a refusal."""
    at = 0
    for part in words.split(" … "):
        assert part in text[at:], (part, text)
        at = text.index(part, at) + len(part)


def assert_sentence(text: str) -> None:
    """Assert that a refusal is one line that somebody wrote: it begins with a word, a number or
    what it quotes, says something of it, and ends where a sentence may.
    """
    assert text.isprintable(), "a refusal is one line"
    assert re.match(r"""[\w'"(/\[*.<-]""", text), text
    assert len(re.findall(r"[A-Za-z]{2,}", text)) >= 3, text
    assert re.search(r"""[\w.?!)\]}'">*/…%$]$""", text), text
    for foreign in ("Traceback", " object at 0x", "Error('", "[Errno", "pydantic"):
        assert foreign not in text, text


def assert_named(parameter: str, refusal: Refusal) -> None:
    """Assert that the words name the parameter, or show its value, for whoever sees them alone; and
    that the error has it, unless several are at fault.
    """
    named, said = parameter.split(", "), refusal.text.casefold()
    for each in named:
        name, _, value = each.partition("=")
        *_, last = re.sub(r"\.\d+", "", name).split(".")
        words = [value] if value else [word.removesuffix("s") for word in last.split("_")]
        assert all(word.casefold() in said for word in words), (each, refusal.text)
    if refusal.parameter is not None:
        assert [refusal.parameter] == [each.partition("=")[0] for each in named]
