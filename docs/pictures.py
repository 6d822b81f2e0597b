"""Makes the pictures of the README: `python docs/pictures.py` in an environment with the extra dev,
with chromium and chromedriver.

docs/images/terminal.svg is what the command prints in a terminal; docs/images/page.png is the
server's page in a browser.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from io import StringIO
from pathlib import Path

from rich.console import Console
from selenium import webdriver
from selenium.webdriver.support.wait import WebDriverWait

from dise import LLM, SamplingParams
from dise_app.terminal.render import legend, show_answer

IMAGES = Path(__file__).with_name("images")
DISE = [sys.executable, "-m", "dise"]
OPTIONS = "--max-tokens 48 --block-length 16 --temperature 2 --n 3 --seed 0"
FIELDS = {"max_tokens": "48", "block_length": "16", "temperature": "2", "n": "3", "seed": "0"}
"""The same on the page."""


def terminal() -> None:
    """Draw three answers as the command prints them."""
    console = Console(record=True, width=100, file=StringIO(), highlight=False)
    params = SamplingParams(max_tokens=48, block_length=16, temperature=2.0, n=3, seed=0)
    [answer] = LLM("countdown").generate("61,27,45 -> 43", params)
    console.print(f'[bold]$ dise generate "61,27,45 -> 43" {OPTIONS}[/bold]')
    show_answer(console, answer)
    console.print(legend())
    (IMAGES / "terminal.svg").write_text(console.export_svg(title="dise"))


def page() -> None:
    """Photograph the page with three answers on it."""
    server = subprocess.Popen([*DISE, "serve", "--port", "0"], stdout=subprocess.PIPE, text=True)
    options = webdriver.ChromeOptions()
    for flag in ("--headless", "--no-sandbox", "--window-size=1000,760", "--hide-scrollbars"):
        options.add_argument(flag)
    driver = None
    try:
        assert server.stdout is not None
        ready = next(line for line in server.stdout if " is ready " in line)
        [address] = re.findall(r"http://\S+", ready)
        driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
        driver.get(address)
        prompt = driver.find_element("id", "prompt")
        WebDriverWait(driver, 60).until(lambda _: prompt.get_property("value"))
        for name, value in {"prompt": "61,27,45 -> 43", **FIELDS}.items():
            field = driver.find_element("id", name)
            field.clear()
            field.send_keys(value)
        driver.find_element("id", "write").click()
        WebDriverWait(driver, 60).until(
            lambda it: len(it.find_elements("css selector", "#answers li")) == 3
        )
        driver.save_screenshot(str(IMAGES / "page.png"))
    finally:
        if driver is not None:
            driver.quit()
        server.terminate()
        server.wait(60)


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    terminal()
    page()
