"""The page in a real browser: a prompt is typed, tokens appear, the score is shown. Needs chromium
and chromedriver.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dise_core import AsyncLLM, BlockCausal, Read, Reading
from dise_core.testing import ToyPredictor
from dise_core.testing.toy_model import LetterTokenizer
from tests.app.serving import ServeProcess, serving

webdriver = pytest.importorskip("selenium.webdriver")

pytestmark = pytest.mark.skipif(
    shutil.which("chromedriver") is None, reason="needs chromium and chromedriver"
)

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--window-size=900,900",
)  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[ServeProcess]:
    process = ServeProcess()
    yield process
    process.stop()


@pytest.fixture
def browser(server: ServeProcess, tmp_path: Path) -> Iterator[Any]:
    with opened(server.url, tmp_path) as driver:
        yield driver


@contextmanager
def opened(url: str, tmp_path: Path) -> Iterator[Any]:
    """Open the page in a browser of its own."""
    options = webdriver.ChromeOptions()
    for flag in (*FLAGS, f"--user-data-dir={tmp_path}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    driver = webdriver.Chrome(options, service)
    try:
        driver.get(url)
        yield driver
    finally:
        driver.quit()


def until(condition: Callable[[], Any]) -> Any:
    end = time.monotonic() + 30
    while not (value := condition()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return value


def find(browser: Any, selector: str) -> list[Any]:
    found: list[Any] = browser.find_elements("css selector", selector)
    return found


def fill(browser: Any, **fields: object) -> None:
    for name, value in fields.items():
        [field] = find(browser, f"#{name}")
        field.clear()
        field.send_keys(str(value))


def test_a_prompt_is_typed_tokens_appear_and_the_score_is_shown(browser: Any) -> None:
    until(lambda: find(browser, "#model")[0].text == "countdown")
    fill(browser, prompt="76,41,59 -> 24", max_tokens=48, n=3, temperature=0.8)
    [prompt] = find(browser, "#prompt")
    prompt.send_keys(webdriver.Keys.CONTROL, webdriver.Keys.ENTER)
    until(lambda: find(browser, "#canvases .mask") and find(browser, "#canvases .token"))
    until(lambda: "forward passes" in find(browser, "#status")[0].text)
    answers = until(lambda: find(browser, "#answers li"))
    assert len(answers) == 3
    scores = [
        float(answer.find_element("css selector", "strong").text.removeprefix("score "))
        for answer in answers
    ]
    assert scores == sorted(scores, reverse=True)
    assert all("<answer>" in answer.text for answer in answers)
    assert len(find(browser, "#answers .selected")) == 30
    assert find(browser, "#answers .token")[0].get_attribute("title").endswith("%")
    assert browser.get_log("browser") == []


def test_the_seed_that_is_told_writes_the_same_again(browser: Any) -> None:
    until(lambda: find(browser, "#model")[0].text == "countdown")

    def write(**fields: object) -> tuple[str, str]:
        fill(browser, prompt="76,41,59 -> 24", max_tokens=32, temperature=5, **fields)
        find(browser, "#write")[0].click()
        until(lambda: "seed" in find(browser, "#status")[0].text)
        return find(browser, "#answers li")[0].text, find(browser, "#status")[0].text.rpartition(
            "seed "
        )[2]

    first, seed = write()
    second, _ = write()
    assert first != second
    assert write(seed=seed) == (first, seed)


def test_a_bad_request_is_told_on_the_page(browser: Any) -> None:
    fill(browser, prompt="hello")
    find(browser, "#write")[0].click()
    until(
        lambda: (
            "vocabulary has no 'h'" in find(browser, "#status.error")[0].text
            if find(browser, "#status.error")
            else False
        )
    )
    assert find(browser, "#write")[0].is_enabled()


def test_text_in_a_prompt_never_becomes_markup(browser: Any) -> None:
    fill(browser, prompt="1<answer>2</answer>", max_tokens=8)
    find(browser, "#write")[0].click()
    until(lambda: find(browser, "#answers li"))
    assert find(browser, "#answers answer") == []


def test_the_page_fits_a_phone(browser: Any) -> None:
    browser.set_window_size(390, 800)
    widths = browser.execute_script(
        "return [document.documentElement.scrollWidth, window.innerWidth]"
    )
    assert widths[0] <= widths[1]


class Talking(LetterTokenizer):
    """Takes a conversation for its last message."""

    @property
    def has_chat_template(self) -> bool:
        return True

    def chat_text(
        self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True
    ) -> str:
        return messages[-1]["content"]


class Slow(ToyPredictor):
    """Writes in blocks of 4, slowly enough to be watched."""

    def __init__(self) -> None:
        super().__init__(max_length=60, attention=BlockCausal(4))
        self.tokenizer = Talking()

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        time.sleep(0.05)
        return super().read(reads)


def test_finished_blocks_show_their_confidence_while_the_next_ones_are_written(
    tmp_path: Path,
) -> None:
    scored = "#canvases .sure, #canvases .likely, #canvases .unlikely, #canvases .wrong"
    with serving(AsyncLLM(Slow())) as url, opened(url, tmp_path) as browser:
        until(lambda: find(browser, "#model")[0].text == "toy")
        [block] = find(browser, "#block_length")
        assert (block.get_attribute("value"), block.is_enabled()) == ("4", False)
        [length] = find(browser, "#length")
        assert length.get_attribute("value") == "until-end"
        fill(browser, prompt="abc", max_tokens=30, seed=1)
        length.send_keys("fixed")
        find(browser, "#write")[0].click()
        until(lambda: find(browser, scored) and find(browser, "#canvases .mask"))
        shown = find(browser, "#canvases span")
        assert len(shown) < 30
        browser.save_screenshot(str(tmp_path / "blocks.png"))
        until(lambda: "forward passes" in find(browser, "#status")[0].text)
        assert browser.get_log("browser") == []
