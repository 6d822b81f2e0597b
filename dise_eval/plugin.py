"""Experiments as a guest of the command."""

from __future__ import annotations

from dise_core import hookimpl


@hookimpl
def dise_commands() -> dict[str, str]:
    """Return the verbs of experiments."""
    return {"calibrate": "dise_eval.cli.calibrate:calibrate", "eval": "dise_eval.cli.verbs:app"}


@hookimpl
def dise_datasets() -> dict[str, str]:
    """Return those of the paper's experiments."""
    homes = {
        "countdown": "countdown:COUNTDOWN",
        "countdown-short": "countdown:SHORT",
        "countdown-answers": "countdown:ANSWERS",
        "countdown-choice": "countdown:CHOICE",
        "gsm8k": "worded:GSM8K",
        "svamp": "worded:SVAMP",
        "svamp-short": "worded:SVAMP_SHORT",
        "math500": "worded:MATH500",
        "arc-challenge": "choices:ARC_CHALLENGE",
        "gpqa": "choices:GPQA",
    }
    return {name: f"dise_eval.datasets.{home}" for name, home in homes.items()}
