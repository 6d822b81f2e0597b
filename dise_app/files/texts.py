"""KEY=VALUE settings, and files that are written whole."""

import json
import os
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import gethostname
from tempfile import TemporaryFile

from dise_core import DiseError, InputError
from dise_core.files import opened_file
from dise_core.params.base import Settings
from dise_core.records import JsonFields, Record


def settings(pairs: Iterable[str], texts: Collection[str] = ()) -> Settings:
    """Return settings of KEY=VALUE pairs, JSON parsed but for those of `texts`;
    PART.KEY=VALUE is in an object of that name. Raises InputError for others.
    """
    settings: Settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise InputError(f"a setting is written KEY=VALUE, not {pair!r}")
        part, _, name = key.rpartition(".")
        fields = settings.setdefault(part, {}) if part else settings
        if not isinstance(fields, dict) or name in fields:
            raise InputError(f"setting {key!r} is given twice")
        fields[name] = value if key in texts else json_or_text(value)
    return settings


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path that replaces `path` once it is on disk. Raises DiseError if not."""
    part = path.with_name(f".{path.name}.tmp-{gethostname()}-{os.getpid()}")
    try:
        yield part
        _sync(part)
        part.replace(path)
        _sync(path.parent)
    except OSError as error:
        raise DiseError(
            f"cannot write {path}: {error.strerror or error}; the file is as it was"
        ) from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    if sys.platform == "win32" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Write a text in UTF-8, whole or not at all. Raises DiseError if that fails."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def write_json(path: Path, record: JsonFields) -> None:
    """Write a record as indented JSON, as `write_text` does."""
    write_text(path, json.dumps(record, indent=2, ensure_ascii=False) + "\n")


def check_folder(output: Path) -> None:
    """Raise InputError unless the folder --output takes files. Leave nothing there."""
    missing = [folder for folder in (output, *output.parents) if not folder.exists()]
    try:
        output.mkdir(parents=True, exist_ok=True)
        _try_folder(output)
    except OSError as error:
        raise InputError(
            f"nothing can be written in the folder --output {output}: {error.strerror}; "
            "name another one",
            "output",
        ) from error
    finally:
        for folder in missing:
            with suppress(OSError):
                folder.rmdir()


def refuse_unwritable(output: Path) -> None:
    """Raise InputError if --output is a folder, or its folder takes no files."""
    if output.is_dir():
        raise InputError(f"--output {output} is a folder; name a file in it", "output")
    try:
        _try_folder(output.parent)
    except OSError as error:
        raise InputError(f"cannot write --output {output}: {error.strerror}", "output") from error


def _try_folder(folder: Path) -> None:
    with TemporaryFile(dir=folder):
        pass


def refuse_existing(path: Path, advice: str) -> None:
    """Raise InputError, with the advice, for a file that holds something."""
    if path.is_file() and path.stat().st_size:
        raise InputError(f"--output {path} exists already: {advice}", "output")


def json_or_text(value: str) -> object:
    """Return the value that a text is in JSON, and any other text as it is."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def json_file(path: Path) -> object:
    """Return what a file of JSON holds. Raises InputError for none, and for an object
    with two values of one name: one would be dropped.
    """

    def distinct(pairs: list[tuple[str, object]]) -> Record:
        record = dict(pairs)
        if len(record) < len(pairs):
            [(name, _)] = Counter(name for name, _ in pairs).most_common(1)
            raise InputError(f"{path} gives {name!r:.80} twice in one object: keep one of them.")
        return record

    try:
        with opened_file(path) as file:
            return json.loads(file.read(), object_pairs_hook=distinct)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} holds no JSON: {error}") from error
