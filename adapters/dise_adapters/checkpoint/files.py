"""The files of a checkpoint, bounded before they are read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from dise_core.errors import CheckpointError, DiseError
from dise_core.records import Record, is_deeper

Model = TypeVar("Model", bound=BaseModel)

MIB = 2**20

MOST_BYTES = {"config.json": MIB}
"""The largest files that are read, by name; MOST_OTHER for any other."""

MOST_OTHER = 64 * MIB

MOST_NESTED = 32
"""The deepest nesting in a file; a config.json of a published model has four levels."""


def check_size(path: Path) -> None:
    """Raise CheckpointError unless it is a file, and not too large for its name."""
    try:
        if path.exists() and not path.is_file():
            raise CheckpointError(f"cannot read {path}: it is not a file")
        size = path.stat().st_size
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
    most = MOST_BYTES.get(path.name, MOST_OTHER)
    if size > most:
        raise CheckpointError(f"cannot read {path}: it has {size} bytes, and at most {most} may be")


def read_object(path: Path) -> Record:
    """Return the JSON object in a file. Raises CheckpointError for anything else."""
    check_size(path)
    try:
        found = parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"cannot read {path}: {one_line(error)}") from error
    if not isinstance(found, dict):
        raise CheckpointError(f"{path} does not hold a JSON object")
    return found


def parse(text: str | bytes) -> object:
    """Return what JSON says. Raises ValueError for what is none, and for too deep nesting."""
    found: object = json.loads(text)
    if is_deeper(found, MOST_NESTED):
        raise ValueError(f"it is nested more than {MOST_NESTED} levels deep")
    return found


def validated(kind: type[Model], fields: object, where: object) -> Model:
    """Return the fields as that model. Raises CheckpointError with the first field that is wrong,
    its value and what is allowed.
    """
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in problem["loc"] if part != "[key]")
        said = "" if problem["type"] == "missing" else f"={problem['input']!r:.80}"
        problem_line = one_line(f"{name:.80}{said}: {problem['msg']}")
        raise CheckpointError(f"cannot read {where}: {problem_line}") from error


@contextmanager
def refused(what: str) -> Iterator[None]:
    """Turn whatever is raised inside into a CheckpointError of one line, a panic of Rust too, which
    is no Exception.
    """
    try:
        yield
    except (DiseError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise CheckpointError(f"{what}: {one_line(error)}") from error


def one_line(error: object) -> str:
    """Return what an error says as one line of moderate length, without the control characters that
    a checkpoint may have put into it.
    """
    text = (str(error) or type(error).__name__)[:2000]
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:400]
