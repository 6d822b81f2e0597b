"""Every selector on texts small enough to count by hand. Laws: tests/laws/test_selectors.py."""

import numpy as np
import pytest

from dise_core import TokenSequence
from dise_core.errors import InputError
from dise_core.plugins.discovery import installed_catalog
from dise_core.testing.toy_model import END, SPECIAL

PROMPT = [1, END, 2, 3]
RESPONSE = [4, 5, END, 6, 7, 8, END, 9, END, END]  # positions 4 to 13, text at 4 5 7 8 9 11


@pytest.mark.parametrize(
    ("name", "positions"),
    [
        ("full", list(range(14))),
        ("prompt-last-99", [0, 1, 2, 3]),
        ("response", list(range(4, 14))),
        ("response-text", [4, 5, 7, 8, 9, 11]),
        ("first-3", [4, 5, 7]),
        ("mid-2", [7, 8]),
        ("mid-3", [5, 7, 8]),
        ("last-1", [11]),
        ("last-4", [7, 8, 9, 11]),
        ("first-blocks-1", [4, 5, 6, 7]),
        ("first-blocks-2", [4, 5, 6, 7, 8, 9, 10, 11]),
        ("last-block", [12, 13]),
        ("prompt-last-2", [2, 3]),
        ("prompt-last-2 + first-1", [2, 3, 4]),
    ],
)
def test_selected_positions(name: str, positions: list[int]) -> None:
    sequence = TokenSequence.of(PROMPT, RESPONSE, SPECIAL, block_length=4)
    assert np.flatnonzero(installed_catalog().selector(name).select(sequence)).tolist() == positions


def test_a_prompt_longer_than_the_text_is_refused() -> None:
    with pytest.raises(InputError, match=r"prompt_length 3 is outside 0..2"):
        TokenSequence(np.array([1, 2]), 3)
