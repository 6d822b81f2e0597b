"""The files of the embedded model, a small LLaDA that solves Countdown problems: with it everything
runs without a download.

README.md is its model card; examples/countdown_model trains it.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
