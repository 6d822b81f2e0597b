"""The README's Python runs as it stands."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dise_core import TokenSequence

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)


def test_the_first_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(BLOCKS[0], "README.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    values = [float(line.split()[0]) for line in lines[:5]]
    assert values == sorted(values, reverse=True)


def test_the_selector_of_ones_own_works() -> None:
    names: dict[str, Any] = {"__name__": "my_selectors"}
    exec(compile(BLOCKS[2], "README.md", "exec"), names)
    selector = names["dise_selectors"]()["every-second"]()
    sequence = TokenSequence(np.arange(7), 2)
    assert np.flatnonzero(selector.select(sequence)).tolist() == [2, 4, 6]
