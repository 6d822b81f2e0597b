"""Intervals of few resamples: each of them fits a regression."""

import pytest

from dise_eval.statistics import resampling


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resampling, "NUM_SAMPLES", 100)
