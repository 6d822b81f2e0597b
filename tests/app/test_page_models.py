"""The page of a model that writes block by block, and of a calibrated one; the page's files."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from pathlib import Path

from dise_core import AsyncLLM, BlockCausal, Read, Reading
from dise_core.testing import ToyPredictor
from tests.app.browser import NEEDED, Keys, Page, values
from tests.app.serving import serving
from tests.calibrations import HOLDING, THRESHOLD, made

FILES = Path(__file__).parents[2] / "dise_app" / "server" / "page"


class Gated(ToyPredictor):
    """Makes only the forward passes that `passes` lets through."""

    def __init__(self) -> None:
        super().__init__(max_length=60, attention=BlockCausal(4))
        self.passes = threading.Semaphore(0)

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        assert self.passes.acquire(timeout=90)
        return super().read(reads)


@NEEDED
def test_finished_blocks_show_their_confidence_and_escape_stops(page: Page) -> None:
    scored = "#canvases .sure, #canvases .likely, #canvases .unlikely, #canvases .wrong"
    model = Gated()
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
def test_a_key_opens_the_form_and_a_calibration_tells_the_probability(page: Page) -> None:
    platt = {"method": "platt", "slope": 1, "intercept": 2, "lowest_score": -9, "highest_score": 0}
    threshold = THRESHOLD | {"score": -2.0}
    given = HOLDING | {"texts": "given"}
    calibration = made(map=platt, selector="last-3", threshold=threshold, holds_for=given)
    llm = AsyncLLM(ToyPredictor(), calibration=calibration)
    with serving(llm, api_key="s\u00e9cret") as url:
        page.open(url, until_ready=False)
        page.until(lambda: page.one("#key").is_displayed())
        page.one("#key").send_keys("s\u00e9cret", Keys.TAB)
        page.until(lambda: page.find("#scorer"))
        assert not page.one("#selector").is_enabled()
        assert "100 labelled answers; abstains where more than 10.0 %" in page.one("header").text
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
