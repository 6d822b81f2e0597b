"""Checkpoints that work, to be spoilt, and what a refusal looks like."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dise_core.errors import InputError, ModelError
from tests import reference_a2d, reference_dream, reference_llada, tiny_causal
from tests.hostile.bounds import bounded
from tests.published import LLADA2, SDAR


@contextmanager
def one_line(match: str = "") -> Iterator[None]:
    """Assert that a refusal of one line, with that in it, is raised inside, within the bounds."""
    with bounded(), pytest.raises((ModelError, InputError), match=match) as caught:
        yield
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 1000
