"""The options of the verbs: those declared in params.py, and those that only the command has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dise_app.cli.tables import MODEL, REQUIRED, FieldOptions, Own, Parts, Table, Verb, option, verb
from dise_core.errors import InputError
from dise_core.params.engine import EngineConfig
from dise_core.params.requests import ScoringParams
from dise_core.plugins.discovery import installed_plugins
from dise_core.records import Fields, Record

__all__ = ["REQUIRED", "FieldOptions", "Own", "Parts", "Table", "Verb", "option", "verb"]

Chat = Annotated[
    bool | None,
    typer.Option(
        "--chat/--no-chat", help="Put text prompts into the model's chat template, or leave them."
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="One JSON object on standard output, and nothing else there.")
]

TARGET = Own(MODEL, model=option(str, "A model's name, a local folder or a hub id.", "countdown"))
"""The option for a model without a judge."""

MODELS = Own(
    MODEL,
    **TARGET.options,
    judge=option(
        str | None,
        "An auto-regressive model for the scorers that ask one: folder, hub id or GGUF file.",
    ),
)

SHARED = Own(
    chat=(Chat, None),
    samples=option(int | None, "Monte Carlo samples: --scorer-setting num_samples=SAMPLES."),
    as_json=(Json, False),
)

FILES = Own(
    "Many requests from a file",
    input=option(Path | None, "JSON lines to read; - is standard input."),
    output=option(
        Path | None, "JSON lines to write, in the order of the input; - is standard output."
    ),
    resume=option(
        bool, "Answer only the lines that OUTPUT lacks, those that failed too.", False, "--resume"
    ),
    overwrite=option(bool, "Replace what OUTPUT holds.", False, "--overwrite"),
)

OWN = [entry.value.options for entry in installed_plugins().engines.values()]
"""The classes of what only one engine takes."""

ENGINE = FieldOptions(EngineConfig, panel=MODEL, more=OWN)

UNCALIBRATED = {"calibration": "experiments fit their own maps, each answer's on other questions"}

ENGINE_ALONE = FieldOptions(EngineConfig, UNCALIBRATED, panel=MODEL, more=OWN)

SCORED: dict[str, Table] = {
    "files": FILES, "models": MODELS, "scoring": FieldOptions(ScoringParams), "engine": ENGINE,
}  # fmt: skip
"""The tables of score and rank, beside what is shared."""


def with_samples(params: Fields, samples: int | None) -> Record:
    """Return the params with the scorer's num_samples. Raises InputError if it is given twice."""
    if samples is None:
        return dict(params)
    named = params.get("scorer_settings", {})
    if "num_samples" in named:
        raise InputError("setting 'num_samples' is given twice")
    return {**params, "scorer_settings": {"num_samples": samples, **named}}
