"""Every refusal is one line, a whole sentence, that names its parameter."""

from __future__ import annotations

import pytest

from tests.refusals import params
from tests.refusals.table import Row, Table, assert_named, assert_sentence

TABLES = [*params.TABLES]

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
    assert words in refusal.text
    assert_sentence(refusal.text)
    named = [] if parameter is None else parameter.split(", ")
    for each in named:
        assert_named(each, refusal.text)
    assert refusal.parameter is None or [refusal.parameter] == named
