"""The options of the verbs: those of params.py, and those of the command alone."""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

import typer

from dise_app.cli.tables import (
    MODEL,
    PANELS,
    REQUIRED,
    FieldOptions,
    Own,
    Parts,
    Table,
    Verb,
    option,
    verb,
)
from dise_app.files.runner import FileRunner
from dise_app.files.texts import json_file
from dise_core import EngineConfig, InputError, SamplingParams, ScoringParams
from dise_core.params.base import Params
from dise_core.params.requests import Ending
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

TARGET = Own(
    MODEL,
    model=option(
        str, "A model's name, a folder, a hub id or a GGUF file.", "countdown", envvar="DISE_MODEL"
    ),
)
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
    as_json=(Json, False),
    explain=option(
        bool,
        "Show how each score is made: what the model read, and which tokens count.",
        False,
        "--explain",
    ),
)
"""The options that generate, score and rank share."""


@cache
def runners() -> list[type[FileRunner]]:
    """Return the classes of guests' ways to answer files."""
    return [entry.load() for entry in installed_plugins().file_runners.values()]


FILES = cache(
    lambda: Own(
        "Many requests from a file",
        input=option(Path | None, "JSON lines to read; - is standard input."),
        output=option(
            Path | None, "JSON lines to write, in the order of the input; - is standard output."
        ),
        resume=option(
            bool,
            "Answer only the lines that OUTPUT lacks, those that failed too.",
            False,
            "--resume",
        ),
        overwrite=option(bool, "Replace what OUTPUT holds.", False, "--overwrite"),
        **{name: its for cls in runners() for name, its in FieldOptions(cls).options.items()},
    )
)

FORMS = Own(
    "How the answer is written",
    schema=option(Path | None, "A file with a JSON schema, under which the answer is valid JSON."),
    regex=option(str | None, "A regular expression, which the answer matches as a whole."),
    choice=option(str | None, "The texts, with commas between them, of which the answer is one."),
)


def _choices(text: str) -> list[str]:
    choices = text.split(",")
    if not all(choices):
        raise InputError(
            f"--choice is written A,B,... with a text between the commas, not {text!r:.80}",
            "choice",
        )
    return choices


_FORMS: dict[str, tuple[str, str, Callable[[Any], object]]] = {
    "schema": ("json-schema", "schema", json_file),
    "regex": ("regex", "regex", str),
    "choice": ("choice", "choices", _choices),
}
"""The constraint of each of FORMS, its setting, and what makes the setting."""


def _engine(without: Fields | None = None) -> FieldOptions:
    """Return how a model is loaded, with the options that only one engine takes."""
    engines = (entry.load().options for entry in installed_plugins().engines.values())
    return FieldOptions(EngineConfig, without, panel=MODEL, more=engines)


def _routes() -> FieldOptions:
    panel = "What requests to plugins' routes leave unsaid"
    options = (entry.load() for entry in installed_plugins().route_options.values())
    return FieldOptions(Params, panel=panel, more=options)


UNCALIBRATED = {"calibration": "experiments fit their own maps, each answer's on other questions"}

ENGINE, ENGINE_ALONE = cache(_engine), cache(partial(_engine, UNCALIBRATED))

ROUTES = cache(_routes)
"""What plugins with routes let the operator of a server set."""

ENDING = FieldOptions(Ending, panel=PANELS[ScoringParams])
"""Whether given texts end."""

WRITTEN: dict[str, Table] = {
    "files": FILES, "models": MODELS, "forms": FORMS, "sampling": FieldOptions(SamplingParams),
    "engine": ENGINE,
}  # fmt: skip
"""The tables of generate and fill, beside what is shared."""

SCORED: dict[str, Table] = {
    "files": FILES, "models": MODELS, "scoring": FieldOptions(ScoringParams), "ending": ENDING,
    "engine": ENGINE,
}  # fmt: skip
"""The tables of score and rank, beside what is shared."""


def with_form(params: Fields, forms: Fields) -> Record:
    """Return params with the constraint of FORMS. Raises InputError for several."""
    values = {form: value for form, value in forms.items() if value is not None}
    if len(values) + ("constraint" in params) > 1:
        raise InputError("give one of --schema, --regex, --choice and --constraint", "constraint")
    for form, value in values.items():
        name, setting, read = _FORMS[form]
        settings = {**params.get("constraint_settings", {}), setting: read(value)}
        return {**params, "constraint": name, "constraint_settings": settings}
    return dict(params)


def sampling_params(parts: Parts) -> SamplingParams:
    """Return an answer's parameters. Raises InputError for options that conflict."""
    if {"steps", "tokens_per_step"} <= parts.sampling.keys():
        raise InputError("give either --steps or --tokens-per-step")
    return SamplingParams(**with_form(parts.sampling, parts.forms))


def runner_of(files: Fields) -> FileRunner | None:
    """Return the guest that answers the requests of a file, if one does."""
    instances = (cls(**{name: files[name] for name in cls.model_fields}) for cls in runners())
    return next((runner for runner in instances if runner.takes(files)), None)
