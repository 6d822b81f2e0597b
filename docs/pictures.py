"""Makes the pictures of the README: `python docs/pictures.py` in an environment with the extra dev,
with chromium and chromedriver.

docs/images/terminal.svg is what the commands print in a terminal; docs/images/page.png is the
server's page in a browser.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text
from selenium import webdriver
from selenium.webdriver.support.wait import WebDriverWait

IMAGES = Path(__file__).with_name("images")
DISE = [sys.executable, "-m", "dise"]
COMMANDS = (
    'dise generate "61,27,45 -> 43" --max-tokens 48 --block-length 16 --temperature 1 --n 3',
    'dise score --prompt "83,18,75 -> 10" --response "18+75=92,92-83=10<answer>18+75-83</answer>"',
)


def terminal() -> None:
    """Draw what the commands print."""
    console = Console(record=True, width=100, file=StringIO())
    for line in COMMANDS:
        arguments = [part.strip('"') for part in re.findall(r'"[^"]*"|\S+', line)][1:]
        environment = dict(os.environ) | {"FORCE_COLOR": "1", "COLUMNS": "100"}
        done = subprocess.run(
            [*DISE, *arguments], env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
        console.print(Text(f"$ {line}", style="bold"))
        console.print(Text.from_ansi(done.stdout))
    (IMAGES / "terminal.svg").write_text(console.export_svg(title="dise"))


def page() -> None:
    """Photograph the page with four answers on it."""
    server = subprocess.Popen([*DISE, "serve", "--port", "0"], stdout=subprocess.PIPE, text=True)
    options = webdriver.ChromeOptions()
    for flag in ("--headless", "--no-sandbox", "--window-size=1000,900", "--hide-scrollbars"):
        options.add_argument(flag)
    driver = None
    try:
        assert server.stdout is not None
        [address] = re.findall(r"http://\S+", server.stdout.readline())
        driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
        driver.get(address)
        for name, value in {"prompt": "61,27,45 -> 43", "n": "4", "temperature": "1"}.items():
            field = driver.find_element("id", name)
            field.clear()
            field.send_keys(value)
        driver.find_element("id", "write").click()
        WebDriverWait(driver, 60).until(
            lambda it: len(it.find_elements("css selector", "#answers li")) == 4
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
