"""The page shows a JSON answer as a form, and takes a list of texts as lines."""

from __future__ import annotations

import pytest

from dise_core import AsyncLLM
from tests.app.browser import NEEDED, Page
from tests.app.serving import Serve
from tests.ascii_model import AsciiPredictor

pytestmark = NEEDED


@pytest.fixture(scope="module")
def url(served: Serve) -> str:
    return served(AsyncLLM(AsciiPredictor()))


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


def test_choices_are_typed_one_a_line(page: Page, url: str) -> None:
    page.open(url)
    page.one("#strategies summary").click()
    page.choose(constraint="choice")
    label = page.one("label:has(#constraint-choices)").text
    assert "choices (one a line)" in label
    assert page.one("textarea[name=stop]").get_attribute("placeholder") == "none"
    page.fill(prompt="hi", max_tokens=24, **{"constraint-choices": 'say "so"\nno, never'})
    page.run()
    assert page.one("#answers .text").text in {'say "so"', "no, never"}
    page.fill(**{"constraint-choices": '["a\\nb"]'})
    page.run()
    assert page.one("#answers .text").text == "a\nb"
    assert page.complaints() == []
