"""Every refusal is one line, a whole sentence, that names its parameter."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dise import AsyncLLM
from dise_app.server.limits import Limits
from dise_core.testing import ToyPredictor
from tests.ascii_model import AsciiPredictor
from tests.refusals import calls, checkpoints, command, constraints, files, http, lines, params
from tests.refusals.table import Row, Table, assert_named, assert_said, assert_sentence

DOORS = params, calls, command, http, lines, files, constraints, checkpoints


@pytest.fixture(scope="module")
def countdown(served: Callable[..., str]) -> str:
    return served(AsyncLLM("countdown"), Limits(max_tokens_limit=64, grace=5))


@pytest.fixture(scope="module")
def letters(served: Callable[..., str]) -> str:
    limits = Limits(max_passes=20, grace=5)
    llm = AsyncLLM(AsciiPredictor(has_chat_template=True), budget=limits.budget)
    return served(llm, limits)


@pytest.fixture(scope="module")
def toy(served: Callable[..., str]) -> str:
    return served(AsyncLLM(ToyPredictor()))


ROWS = [
    pytest.param(table, row, id=f"{table.door}-{number}")
    for door in DOORS
    for table in door.TABLES
    for number, row in enumerate(table.rows)
]


@pytest.mark.parametrize(("table", "row"), ROWS)
def test_a_refusal_is_one_sentence_that_names_its_parameter(
    table: Table, row: Row, request: pytest.FixtureRequest
) -> None:
    given, parameter, words = row
    refusal = table.refuse(given, request)
    assert_said(words, refusal.text)
    assert_sentence(refusal.text)
    assert_named(parameter, refusal)
