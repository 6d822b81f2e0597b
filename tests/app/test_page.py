"""The page in a real browser: writing, scoring, comparing, by keyboard."""

from __future__ import annotations

import math
from urllib.parse import urlsplit

import numpy as np
import pytest
from pydantic import Field

from dise_core import AsyncLLM, Plan, Score, Scorer, TokenSequence
from dise_core.scoring.scorer import Selector
from dise_core.testing import ToyPredictor
from dise_core.testing.toy_model import END, LETTERS
from tests.app.browser import NEEDED, Keys, Page, values
from tests.app.serving import Serve
from tests.core.test_weights import Late
from tests.guests import with_guests

pytestmark = NEEDED


class Weighted(Scorer):
    """Counts the tokens, <b>each</b> with a weight."""

    weight: float = Field(default=1.0, ge=0, le=9)
    """Of a token, <b>as it is</b>."""

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        positions = np.flatnonzero(selector.select(sequence))
        return Score(-self.weight * len(positions), positions)
        yield []


@pytest.fixture(scope="module")
def countdown(served: Serve) -> str:
    return served(AsyncLLM("countdown"))


@pytest.fixture(scope="module")
def toy(served: Serve) -> str:
    catalog = with_guests(scorers={"weighted": Weighted}, selectors={"late": Late})
    return served(AsyncLLM(ToyPredictor(), catalog=catalog))


def test_a_prompt_is_typed_tokens_appear_and_the_score_is_shown(page: Page, toy: str) -> None:
    page.open(toy)
    assert page.one("#model").text == "toy"
    page.fill(prompt="abc", max_tokens=30, n=3, temperature=0.8)
    page.one("#prompt").send_keys(Keys.CONTROL, Keys.ENTER)
    page.until(lambda: page.find("#canvases .mask") and page.find("#canvases .token"))
    page.done()
    answers = page.find("#answers li")
    assert len(answers) == 3
    scores = values(page, "#answers strong")
    assert scores == sorted(scores, reverse=True)
    shares = [each.text for each in page.find("#answers .figure")]
    for share, score in zip(shares, scores, strict=True):
        assert float(share.removesuffix(" %")) == pytest.approx(100 * math.exp(score), abs=0.1)
    for answer in answers:
        tokens = answer.find_elements("css selector", ".token")
        selected = answer.find_elements("css selector", ".selected")
        assert selected == tokens[-10:]
    assert not page.one("#canvas_section").is_displayed()
    assert page.complaints() == []


def test_a_link_restores_the_form_and_its_seed_the_answer(page: Page, toy: str) -> None:
    page.open(toy)
    page.one("#strategies summary").click()
    page.fill(prompt="abc", max_tokens=24, temperature=5)
    page.choose(scorer="interleaved")
    page.fill(**{"scorer-k": 3})
    page.choose(selector="first-K")
    page.fill(**{"selector-k": 7})
    status = page.run()
    first = page.one("#answers .text").text
    assert "interleaved over first-7, 7 tokens" in page.one("#answers .score").text
    fragment = urlsplit(page.driver.current_url).fragment
    seed = status.rpartition("seed ")[2]
    assert page.run() != status
    assert page.one("#answers .text").text != first
    page.open(toy, f"{fragment}&seed={seed}")
    fields = {name: page.one(f"#{name}").get_attribute("value") for name in (
        "prompt", "max_tokens", "scorer", "scorer-k", "selector", "selector-k", "seed", "n"
    )}  # fmt: skip
    assert list(fields.values()) == ["abc", "24", "interleaved", "3", "first-K", "7", seed, ""]
    page.run()
    assert page.one("#answers .text").text == first
    page.open(toy, "mode=score&text=a&text=b&scorer=nobody&zzz=1&reviser=remask")
    assert page.one("#status.error").text.endswith("not here: scorer nobody, zzz")
    assert page.one("#tab_score").get_attribute("aria-selected") == "true"
    assert [each.get_attribute("value") for each in page.find("#texts textarea")] == ["a", "b"]
    assert page.one("#reviser").get_attribute("value") == "remask"


def test_everything_is_done_by_keyboard_with_a_plugins_scorer(page: Page, toy: str) -> None:
    page.open(toy)
    assert page.focused == page.one("#prompt")
    page.press(Keys.SHIFT + Keys.TAB, Keys.ARROW_RIGHT)
    assert page.focused == page.one("#tab_score")
    page.tab_to("#prompt")
    page.press("abc")
    page.tab_to("#text")
    page.press("defgh")
    page.tab_to("#strategies summary")
    page.press(Keys.ENTER)
    page.tab_to("#scorer")
    page.press("we")
    assert page.one("#scorer option:checked").text == "weighted (guest)"
    assert "Counts the tokens, <b>each</b>" in page.one("#pickers").text
    assert "Of a token, <b>as it is</b>" in page.one("#pickers").text
    assert page.find("#pickers b") == []
    page.tab_to("#scorer-weight")
    page.press("2.5", Keys.CONTROL + Keys.ENTER)
    page.done()
    assert values(page, "#answers strong") == [-12.5]
    page.tab_to("#answers .token")
    page.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_LEFT)
    token = page.focused
    logits = ToyPredictor().logits(np.append(np.arange(8), END))[5]
    logprobs = logits - math.log(sum(math.exp(x) for x in logits))
    assert token.text == "f"
    assert token.get_attribute("title") == f"{100 * math.exp(logprobs[5]):.1f} %"
    page.press(Keys.ENTER)
    shown = [li.text.split("\n") for li in page.find("#inspector li")]
    best = np.argsort(-logprobs)[:5].tolist()
    names = [*LETTERS, "<end>", "<mask>"]
    assert shown == [[names[i], f"{100 * math.exp(logprobs[i]):.1f} %"] for i in best]
    page.press(Keys.ESCAPE)
    page.until(lambda: not page.one("#inspector").is_displayed())
    assert page.focused == token
    page.press(Keys.ENTER)
    other = next(i for i in best if i != 5 and i < len(LETTERS))
    page.press(*[Keys.TAB] * [i for i in best if i != 5].index(other), Keys.ENTER)
    page.until(lambda: len(page.find("#answers li")) == 2)
    assert [each.text for each in page.find("#answers .text")] == ["defgh", f"de{names[other]}gh"]
    assert [each.text for each in page.find("#answers .text .differs")] == [names[other]]
    page.tab_to("#compare")
    page.press(Keys.SPACE)
    assert page.find("#answers .differs") == []
    assert page.complaints() == []


def test_a_selectors_settings_are_set_in_a_union_too(page: Page, toy: str) -> None:
    logits = ToyPredictor().logits(np.append(np.arange(8), END))[:8]
    logprobs = np.diag(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
    page.open(toy, "mode=score&prompt=abc&text=defgh")
    page.one("#strategies summary").click()
    for selector, fields, weights in (
        ("late", {"selector-mark": "f"}, {6: 7, 7: 8}),
        ("+", {"selector-names": "late+last-3"}, {5: 6, 6: 7, 7: 8}),
        ("+", {"selector-settings": '{"late": {"mark": "g"}}'}, {5: 1, 6: 1, 7: 8}),
        ("last-K", {"selector-k": 2}, {6: 1, 7: 1}),
    ):
        page.choose(selector=selector)
        if "selector-settings" in fields:
            page.fill(**{"selector-names": "late+last-3"})
        page.fill(**fields)
        page.run()
        by_hand = sum(w * logprobs[at] for at, w in weights.items()) / sum(weights.values())
        assert values(page, "#answers strong") == [pytest.approx(by_hand, abs=1e-2)]
    assert page.complaints() == []


def test_texts_are_written_edited_and_compared(page: Page, countdown: str) -> None:
    page.open(countdown)
    page.fill(prompt="1<answer>2</answer>", max_tokens=8)
    page.run()
    assert page.find("#answers answer") == [], "a model's text is no markup"
    page.open(countdown)
    assert page.run().startswith("65 forward passes"), "the library's defaults"
    page.one("#tab_score").click()
    assert len(page.find("#texts textarea")) == 2, "an example stands there"
    assert page.run().startswith("2 forward passes")
    right, wrong = values(page, "#answers strong")
    assert right > wrong
    page.one("#compare").click()
    [first, second] = page.find("#answers .text")
    assert first.find_elements("css selector", ".differs") == []
    framed = "".join(each.text for each in second.find_elements("css selector", ".differs"))
    assert 0 < len(framed) < len(second.text)
    page.find("#answers .buttons button")[3].click()
    [area] = page.find("#texts textarea")
    assert area.get_attribute("value") == second.text
    area.send_keys("0")
    assert page.run().startswith("1 forward pass,")
    assert page.one("#answers .text").text == area.get_attribute("value")


def test_a_bad_request_is_told_at_its_field(page: Page, toy: str) -> None:
    page.open(toy)
    page.fill(prompt="abc", n=2, max_tokens=24)
    page.one("#write").click()
    page.until(lambda: page.find("#status.error"))
    assert "at temperature 0 would all be the same" in page.one("#status").text
    assert page.one("[aria-invalid]") == page.one("#temperature")
    assert page.one("#write").is_enabled()
    page.one("#others summary").click()
    page.fill(n="", logit_bias="[no")
    page.one("#write").click()
    page.until(lambda: page.one("#status").text == "logit_bias: [no is not JSON")
    page.fill(logit_bias="", temperature=5, seed=1)
    page.run()
    assert page.find("[aria-invalid]") == []
    tokens = [each.text for each in page.find("#answers .token")]
    page.fill(stop=f'["{tokens[3]}"]')
    page.run()
    assert [each.text for each in page.find("#answers .token")] == tokens[: tokens.index(tokens[3])]
