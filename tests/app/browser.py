"""The page in a real browser, for tests. Needs chromium and chromedriver."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

webdriver = pytest.importorskip("selenium.webdriver")

from selenium.webdriver.support.ui import Select  # noqa: E402

NEEDED = pytest.mark.skipif(
    shutil.which("chromedriver") is None, reason="needs chromium and chromedriver"
)

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-extensions", "--window-size=900,900",
)  # fmt: skip

Keys = webdriver.Keys


class Page:
    """The page of a server, as a user meets it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, url: str, fragment: str = "", until_ready: bool = True) -> None:
        """Open the page anew, and wait for its form."""
        self.driver.get("about:blank")
        self.driver.get_log("browser")
        self.driver.get(f"{url}/#{fragment}" if fragment else url)
        if until_ready:
            self.until(lambda: self.find("#pickers select"))

    def find(self, selector: str) -> list[Any]:
        """Return the elements of a CSS selector."""
        found: list[Any] = self.driver.find_elements("css selector", selector)
        return found

    def one(self, selector: str) -> Any:
        """Return the only element of a CSS selector."""
        [found] = self.find(selector)
        return found

    def until(self, condition: Callable[[], Any]) -> Any:
        """Return the condition's value once it is true."""
        end = time.monotonic() + 90
        while not (value := condition()):
            assert time.monotonic() < end, self.one("#status").text
            time.sleep(0.02)
        return value

    def fill(self, **fields: object) -> None:
        """Type into the fields with these ids."""
        for name, value in fields.items():
            field = self.one(f"#{name}")
            field.clear()
            field.send_keys(str(value))

    def choose(self, **values: str) -> None:
        """Choose from the lists with these ids."""
        for name, value in values.items():
            Select(self.one(f"#{name}")).select_by_value(value)

    def run(self) -> str:
        """Press the button, and return the status of the answer."""
        self.one("#write").click()
        return self.done()

    def done(self) -> str:
        """Return the status once the answers are there."""
        self.until(lambda: "forward pass" in self.one("#status").text)
        status: str = self.one("#status").text
        return status

    def press(self, *keys: str) -> None:
        """Press keys where the focus is."""
        for key in keys:
            self.focused.send_keys(key)

    def tab_to(self, selector: str) -> None:
        """Press Tab until the element has the focus, as one who has no mouse does."""
        for _ in range(80):
            if self.focused in self.find(selector):
                return
            self.press(Keys.TAB)
        raise AssertionError(f"Tab never reaches {selector}")

    @property
    def focused(self) -> Any:
        """The element that has the focus."""
        return self.driver.switch_to.active_element

    def complaints(self) -> list[Any]:
        """Return what the browser's console says since the page was opened."""
        found: list[Any] = self.driver.get_log("browser")
        return found


def values(page: Page, selector: str) -> list[float]:
    """Return the scores that the elements of a CSS selector show."""
    return [float(each.text.removeprefix("score ")) for each in page.find(selector)]


@contextmanager
def browsing(profile: Path) -> Iterator[Page]:
    """Start a browser with a profile of its own."""
    options = webdriver.ChromeOptions()
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    driver = webdriver.Chrome(options, service)
    try:
        yield Page(driver)
    finally:
        driver.quit()
