"""The page of a model that writes block by block, and of a calibrated one; the page's files."""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from dise_core import LLM, AsyncLLM, BlockCausal, Read, Reading
from dise_core.calibration import Calibration, Figures, Platt, Threshold
from dise_core.model import BIDIRECTIONAL, Attention
from dise_core.testing import ToyPredictor
from dise_core.testing.toy_model import END, LETTERS, MASK, LetterTokenizer
from tests.app.browser import NEEDED, Keys, Page, values
from tests.app.serving import serving

FILES = Path(__file__).parents[2] / "dise_app" / "server" / "page"


class Talking(LetterTokenizer):
    """Takes a conversation for its last message."""

    @property
    def has_chat_template(self) -> bool:
        return True

    def chat_text(
        self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True
    ) -> str:
        return messages[-1]["content"]


class Gated(ToyPredictor):
    """Makes only the forward passes that `passes` lets through."""

    def __init__(self, attention: Attention) -> None:
        super().__init__(max_length=60, attention=attention)
        self.tokenizer = Talking()
        self.passes = threading.Semaphore(0)

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        assert self.passes.acquire(timeout=90)
        return super().read(reads)


@NEEDED
def test_finished_blocks_show_their_confidence_and_escape_stops(page: Page) -> None:
    scored = "#canvases .sure, #canvases .likely, #canvases .unlikely, #canvases .wrong"
    model = Gated(BlockCausal(4))
    with serving(AsyncLLM(model)) as url:
        page.open(url)
        block = page.one("#block_length")
        assert (block.get_attribute("value"), block.is_enabled()) == ("4", False)
        page.fill(prompt="abc", max_tokens=30, seed=1)
        page.one("#strategies summary").click()
        page.choose(length="fixed")
        page.one("#write").click()
        model.passes.release(6)
        page.until(lambda: page.find(scored) and page.find("#canvases .mask"))
        assert len(page.find("#canvases span")) < 30
        model.passes.release(100)
        page.done()
        assert len(page.find("#answers .token")) > 20
        while model.passes.acquire(blocking=False):
            pass
        page.one("#write").click()
        model.passes.release(3)
        page.until(lambda: page.find("#canvases .token"))
        page.press(Keys.ESCAPE)
        page.until(lambda: page.one("#status").text == "stopped")
        model.passes.release(100)
        assert page.complaints() == []


@NEEDED
def test_a_token_shows_how_likely_it_was_when_it_was_written(page: Page) -> None:
    model = Gated(BIDIRECTIONAL)
    logits = model.logits(np.array([0, 1, 2] + [MASK] * 8))[3:]
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    likeliest = np.delete(probabilities, MASK, axis=1)
    position = int(likeliest.max(axis=1).argmax())
    token, share = int(likeliest[position].argmax()), float(likeliest[position].max())
    assert token != END
    with serving(AsyncLLM(model)) as url:
        page.open(url)
        page.fill(prompt="abc", max_tokens=8, tokens_per_step=1)
        page.one("#write").click()
        model.passes.release(1)
        page.until(lambda: page.find("#canvases .token"))
        shown = page.find("#canvases .text > span")[position]
        assert (shown.text, shown.get_attribute("title")) == (
            LETTERS[token],
            f"{100 * share:.1f} %",
        )
        colours = {"sure": 0.9, "likely": 0.5, "unlikely": 0.1, "wrong": 0.0}
        expected = next(name for name, least in colours.items() if share >= least)
        assert set(shown.get_attribute("class").split()) == {"token", "new", expected}
        model.passes.release(100)
        page.done()


def calibration() -> Calibration:
    figures = dict.fromkeys(("ece", "adaptive_ece", "smooth_ece", "brier", "auroc"), 0.1)
    promise = {"rule": "sgr", "max_risk": 0.1, "confidence": 0.95, "num_labels": 200}
    return Calibration(
        model="toy", fingerprint=None, judge=None, scorer="dise", selector="last-3",
        scorer_settings={}, num_labels=200, num_right=90, num_questions=200, source="a test",
        map=Platt(slope=1.0, intercept=2.0, lowest_score=-9.0, highest_score=0.0),
        figures=Figures(num_bins=10, brier_skill=0.1, **figures),
        threshold=Threshold(score=-2.0, coverage=0.5, risk=0.05, bound=0.1, **promise),  # type: ignore[arg-type]
    )  # fmt: skip


@NEEDED
def test_a_key_opens_the_form_and_a_calibration_tells_the_probability(page: Page) -> None:
    llm = AsyncLLM(ToyPredictor(), calibration=calibration())
    with serving(llm, api_key="s\u00e9cret") as url:
        page.open(url, until_ready=False)
        page.until(lambda: page.one("#key").is_displayed())
        page.one("#key").send_keys("s\u00e9cret", Keys.TAB)
        page.until(lambda: page.find("#scorer"))
        assert not page.one("#selector").is_enabled()
        assert "200 labelled answers; abstains where more than 10.0 %" in page.one("header").text
        page.one("#tab_score").click()
        page.fill(prompt="abc", text="defgh")
        page.one("#add_text").click()
        page.fill(text_2="dfcbc")
        page.run()
        assert "cret" not in page.driver.current_url
    told = [each.text for each in page.find("#answers .chance")]
    expected = [
        f"likely to be right: {100 / (1 + math.exp(-score - 2)):.1f} %"
        + ("; abstained, as it is below the threshold" if score < -2 else "")
        for score in values(page, "#answers strong")
    ]
    assert told == expected
    assert len({"abstained" in each for each in told}) == 2, "one of each, or it tests little"


def test_the_pages_files_load_nothing_from_elsewhere_and_make_no_markup() -> None:
    files = [path for path in FILES.iterdir() if path.is_file()]
    assert {path.suffix for path in files} == {".html", ".css", ".js"}
    for path in files:
        text = path.read_text()
        for word in ("http:", "https:", "innerHTML", "outerHTML", "insertAdjacentHTML",
                     "document.write", "eval(", "style=", "onclick=", "@import"):  # fmt: skip
            assert word not in text, (path.name, word)


@pytest.mark.parametrize("name", ["countdown", "countdown-blocks", "word-problems"])
def test_the_page_has_an_example_for_each_embedded_model(name: str) -> None:
    script = (FILES / "app.js").read_text()
    [constant] = re.findall(rf'EXAMPLES = {{.*"{name}": (\w+)', script)
    [example] = re.findall(rf"^const {constant} = {{\n(.*?)^}};", script, re.DOTALL | re.MULTILINE)
    [prompt] = re.findall(r'prompt: ("[^"]*")', example)
    [texts] = re.findall(r"texts: (\[.*\])", example)
    scores = LLM(name).score([json.loads(prompt)] * 2, json.loads(texts))
    right, wrong = (answer.outputs[0].score.value for answer in scores)
    assert right > wrong
