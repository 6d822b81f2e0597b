"""The README's Python runs as it stands."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dise_core import TokenSequence

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python[^\n]*\n(.*?)```", README.read_text(), flags=re.DOTALL)


def test_the_first_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(BLOCKS[0], "<README.md>", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    values = [float(line.split()[0]) for line in lines]
    assert len(lines) == 7
    assert values[:5] == sorted(values[:5], reverse=True)
    assert values[5] > values[6]
    shown = re.findall(r"```python\n.*?```\n\n```\n(.*?)```", README.read_text(), flags=re.DOTALL)[
        0
    ].splitlines()
    assert [line.split()[1] for line in lines] == [line.split()[1] for line in shown]


def test_the_selector_of_ones_own_works() -> None:
    names: dict[str, Any] = {"__name__": "my_selectors"}
    exec(compile(BLOCKS[2], "<README.md>", "exec"), names)
    selector = names["EverySecond"]()
    sequence = TokenSequence(np.arange(7), 2)
    assert np.flatnonzero(selector.select(sequence)).tolist() == [2, 4, 6]


PAGES = [README, *sorted((README.parent / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(README.parent)))
def test_what_a_page_links_to_is_there(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []
