"""What a page of the docs tells its readers to write into files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

TITLED = re.compile(r'^```\w+ title="([\w.]+)"\n(.*?)^```', flags=re.DOTALL | re.MULTILINE)
"""A block that names its file."""

TABLE = re.compile(r"^\[[\w.-]+\]\n.*?(?=^\[|\Z)", flags=re.DOTALL | re.MULTILINE)
"""A table of TOML, with its heading."""


def titled(page: str) -> dict[str, str]:
    """Return the text of each file that the page names: its blocks one after the other, and of a
    TOML table the last one.
    """
    files: dict[str, str] = {}
    for name, text in TITLED.findall(page):
        files[name] = f"{files[name]}\n\n{text}" if name in files else text
    return {
        name: _last_tables(text) if name.endswith(".toml") else text for name, text in files.items()
    }


def _last_tables(text: str) -> str:
    tables = {table.partition("\n")[0]: table for table in TABLE.findall(text)}
    return "\n".join(tables.values())


ROOT = Path(__file__).parents[1]

BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)


SHOWN = re.compile(r"^```\n(dise [^`]*)^```\n\n```text\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
"""A block with a command, and one with what it prints, or a part of it."""


def joined(text: str) -> str:
    """Return the text with each command in one line."""
    return re.sub(r"\\\n\s*", " ", text)


def shown_of(page: Path) -> list[tuple[str, str]]:
    """Return the commands whose output the page shows, each with that output."""
    return [(joined(line).strip(), output) for line, output in SHOWN.findall(page.read_text())]


def python_of(page: Path) -> list[str]:
    return [text for kind, text in BLOCK.findall(page.read_text()) if kind == "python"]


def lines_of(page: Path) -> Iterator[str]:
    """Yield the page's commands, each as one line, without the prompt and the comment."""
    for kind, text in BLOCK.findall(page.read_text()):
        for line in joined(text).splitlines():
            command = line.removeprefix("$ ")
            if kind in {"", "bash"} and re.match(r"dise(-lm-eval)? +(?!the )", command):
                yield command
