"""What the command and the server refuse, under the law of tests/laws/test_refusals.py."""

from __future__ import annotations

import pytest

from dise import AsyncLLM
from dise_app.server.limits import Limits
from dise_core.testing import ToyPredictor
from tests.app.serving import Serve
from tests.ascii_model import AsciiPredictor
from tests.refusals import command, files, http, lines
from tests.refusals.table import Row, Table, assert_refused, rows_of


@pytest.fixture(scope="module")
def countdown(served: Serve) -> str:
    return served(AsyncLLM("countdown"), Limits(max_tokens_limit=64, grace=5))


@pytest.fixture(scope="module")
def letters(served: Serve) -> str:
    limits = Limits(max_passes=20, grace=5)
    llm = AsyncLLM(AsciiPredictor(has_chat_template=True), budget=limits.budget)
    return served(llm, limits)


@pytest.fixture(scope="module")
def toy(served: Serve) -> str:
    return served(AsyncLLM(ToyPredictor()))


@pytest.mark.parametrize(("table", "row"), rows_of(command, http, lines, files))
def test_a_refusal_is_one_sentence_that_names_its_parameter(
    table: Table, row: Row, request: pytest.FixtureRequest
) -> None:
    assert_refused(table, row, request)
