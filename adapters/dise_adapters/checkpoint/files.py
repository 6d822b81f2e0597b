"""The JSON files of a checkpoint, and errors of one line."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dise_core import CheckpointError, DiseError, ModelError
from dise_core.files import opened_file
from dise_core.records import JsonFields


def read_object(path: Path) -> JsonFields:
    """Return the JSON object in a file. Raises CheckpointError for anything else."""
    with refused(f"cannot read {path}"), opened_file(path) as file:
        value = json.loads(file.read().decode())
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} does not hold a JSON object")
    return value


@contextmanager
def refused(problem: str, kind: type[ModelError] = CheckpointError) -> Iterator[None]:
    """Turn all else that is raised, Rust's panics too, into our error of one line."""
    try:
        yield
    except (DiseError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        reason = one_line(error)
        if isinstance(error, OSError) and str(error.filename) in problem:
            reason = str(error.strerror)  # without the path, which the sentence has
        raise kind(f"{problem}: {reason}") from None


def one_line(error: object) -> str:
    """Return what an error says as one printable line of moderate length."""
    text = (str(error) or type(error).__name__)[:2000]
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:400]
