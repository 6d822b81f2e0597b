"""Every refusal is one line, a whole sentence, that names its parameter."""

from __future__ import annotations

import pytest

from tests.refusals import calls, command, params
from tests.refusals.table import Row, Table, assert_named, assert_said, assert_sentence

TABLES = [*params.TABLES, *calls.TABLES, *command.TABLES]

ROWS = [
    pytest.param(table, row, id=f"{table.door}-{number}")
    for table in TABLES
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
