"""Every refusal is one line, a whole sentence, that names its parameter: in Python here, of the
command and the server in tests/app/test_refusals.py.
"""

from __future__ import annotations

import pytest

from tests.refusals import calls, checkpoints, constraints, params
from tests.refusals.table import Row, Table, assert_refused, rows_of


@pytest.mark.parametrize(("table", "row"), rows_of(params, calls, constraints, checkpoints))
def test_a_refusal_is_one_sentence_that_names_its_parameter(
    table: Table, row: Row, request: pytest.FixtureRequest
) -> None:
    assert_refused(table, row, request)
