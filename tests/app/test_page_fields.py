"""The page shows a JSON answer as a form."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dise_core import AsyncLLM
from tests.app.browser import NEEDED, Page
from tests.app.serving import serving
from tests.ascii_model import AsciiPredictor

pytestmark = NEEDED


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(AsyncLLM(AsciiPredictor())) as url:
        yield url


def test_each_value_is_shown_in_the_colour_of_its_score(page: Page, url: str) -> None:
    page.open(url)
    page.one("#strategies summary").click()
    page.choose(constraint="json-object")
    page.fill(prompt="hi", max_tokens=24, seed=3)
    page.run()
    text = page.one("#answers .text").text
    names = [one.text for one in page.find("#answers .values dt")]
    values = page.find("#answers .values .token")
    assert names
    assert len(names) == len(values)
    assert all(name.startswith("/") for name in names)
    assert all(value.text in text for value in values)
    shades = {"sure", "likely", "unlikely", "wrong"}
    assert all(shades & {*value.get_attribute("class").split()} for value in values)
    assert page.complaints() == []
