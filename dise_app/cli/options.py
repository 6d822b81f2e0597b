"""The options of the verbs: those declared in params.py, and those that only the command has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dise_app import doors
from dise_app.cli.tables import PANELS, REQUIRED, Fields, Option, Own, Parts, Verb, verb
from dise_core.params import EngineConfig, ScoringParams
from dise_core.records import Record

__all__ = ["REQUIRED", "Fields", "Option", "Own", "Parts", "Verb", "verb"]

Samples = Annotated[
    int | None, typer.Option(help="Monte Carlo samples: --scorer-setting num_samples=SAMPLES.")
]
Chat = Annotated[
    bool | None,
    typer.Option(
        "--chat/--no-chat", help="Put text prompts into the model's chat template, or leave them."
    ),
]
Finished = Annotated[
    bool | None,
    typer.Option(
        "--finished/--unfinished",
        help="Whether responses end where they end, and are read with an end token after them. "
        "Without it texts do, and token ids are taken as they are.",
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="One JSON object on standard output, and nothing else there.")
]

MODEL = PANELS[EngineConfig]

MODEL_NAME = (
    Annotated[str, typer.Option(help="A model's name, a local folder or a hub id.")],
    "countdown",
)

JUDGE = (
    Annotated[
        str | None,
        typer.Option(
            help=(
                "An auto-regressive model for the scorers that ask one: folder, hub id or GGUF "
                "file."
            )
        ),
    ],
    None,
)

SHARED = Own(chat=(Chat, None), samples=(Samples, None), as_json=(Json, False))
"""The command's own options of generate, score and rank."""

FILES = Own(
    "Many requests from a file",
    input=(
        Annotated[Path | None, typer.Option(help="JSON lines to read; - is standard input.")],
        None,
    ),
    output=(
        Annotated[
            Path | None,
            typer.Option(
                help="JSON lines to write, in the order of the input; - is standard output."
            ),
        ],
        None,
    ),
    resume=(
        Annotated[
            bool,
            typer.Option(
                "--resume", help="Answer only the lines that OUTPUT lacks, those that failed too."
            ),
        ],
        False,
    ),
    overwrite=(
        Annotated[bool, typer.Option("--overwrite", help="Replace what OUTPUT holds.")],
        False,
    ),
)
"""The options for many requests from a file."""

TARGET = Own(MODEL, model=MODEL_NAME)
"""The option for a model without a judge."""

MODELS = Own(MODEL, model=MODEL_NAME, judge=JUDGE)
"""The options for a model and its judge."""

ENGINE = Fields(EngineConfig)
"""How models are loaded and run, and how their scores are calibrated."""

ENGINE_ALONE = Fields(EngineConfig, doors.UNCALIBRATED)
"""The same without a calibration."""

_GIVEN = {"files": FILES, "models": MODELS, "scoring": Fields(ScoringParams), "engine": ENGINE}

score_verb = verb(shared=Own(**SHARED.options, finished=(Finished, None)), **_GIVEN)
"""The decorator of score."""

rank_verb = verb(shared=SHARED, **_GIVEN)
"""The decorator of rank."""


def with_samples(params: Record, samples: int | None) -> Record:
    """Return the params with `samples` as the scorer's setting num_samples. Raises InputError if
    that is also given.
    """
    from dise_core.errors import InputError

    if samples is None:
        return params
    named = params.get("scorer_settings", {})
    if "num_samples" in named:
        raise InputError("setting 'num_samples' is given twice")
    return {**params, "scorer_settings": {"num_samples": samples, **named}}
