"""JSON Lines in and out: bad lines are reported and skipped; output keeps the input's order."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from dise_app.cli.ending import close, counted, in_order
from dise_app.cli.resume import AnswerFile
from dise_app.lines import encoded, lines_of, parse, without_bom
from dise_app.texts import refuse_existing, settings_path
from dise_core.errors import DiseError, InputError
from dise_core.llm import LLM
from dise_core.outputs import RequestOutput
from dise_core.reading import Plan
from dise_core.records import Fields, Record

STANDARD = Path("-")

RESUME_OR_OVERWRITE = "--resume goes on with it, --overwrite replaces it"

PlanOf = Callable[[Record], Plan[RequestOutput]]
"""Returns the plan that answers a record."""

Add = Callable[[Record], None]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the input: its number from 1, and its record, or the problem with it."""

    number: int
    record: Record
    problem: str | None = None


def read_lines(path: Path) -> Iterator[Line]:
    """Yield the non-blank lines of a file. Raises InputError if it cannot be read."""
    with _open_to_read(path) as file:
        for number, line in enumerate(lines_of(file), start=1):
            text = without_bom(line) if number == 1 else line
            if text.strip():
                yield _parse(number, text)


def run_file(llm: LLM, files: Fields, plan_of: PlanOf, settings: Fields) -> None:
    """Answer every line of --input, and tell how many were answered. settings: what the answers
    depend on, beside the lines. Raises typer.Exit(1) if any line failed, InputError for unsuitable
    files, DiseError if the answers cannot be written.
    """
    path, output, resume = files["input"], files["output"] or STANDARD, files["resume"]
    for name in ("resume", "overwrite"):
        if files[name] and output == STANDARD:
            raise InputError(f"--{name} needs --output FILE", name)
    if resume and files["overwrite"]:
        raise InputError("give either --resume or --overwrite", "resume")
    if any(_is_same(path, each) for each in (output, settings_path(output))):
        raise InputError(f"--input and --output are the same file {path}", "output")
    lines = list(read_lines(path))
    if not lines:
        raise InputError(f"--input {path} holds no line", "input")
    if output == STANDARD:
        num_failed = complete(llm, lines, plan_of, _print)
    else:
        with AnswerFile(output, settings) as file:
            if not (resume or files["overwrite"]):
                refuse_existing(output, RESUME_OR_OVERWRITE)
            done = file.answered({line.number: line.record for line in lines}) if resume else ()
            file.begin()
            todo = [line for line in lines if line.number not in done]
            num_failed = complete(llm, todo, plan_of, file.add, len(done))
    close(len(lines) - num_failed, num_failed, is_told=True)


def complete(llm: LLM, lines: list[Line], plan_of: PlanOf, add: Add, num_done: int = 0) -> int:
    """Run a plan for every line, hand the answers to `add`, and return how many lines failed.

    An answer also has the input line's keys that it does not define itself, and the line's number
    as "line". A line that fails is reported on standard error and not written. Each answer is
    written as soon as all lines before it have ended. num_done: lines of earlier runs.
    """
    from dise_app.cli.progress import progress_bar

    num_failed = 0
    # Lines and a bar on one terminal would run into each other.
    is_wanted = add is not _print or not sys.stdout.isatty()
    with progress_bar(num_done + len(lines), is_wanted=is_wanted) as advance:
        advance(num_done)
        outcomes = llm.run(_plan(line, plan_of) for line in lines)
        for line, outcome in in_order(lines, counted(outcomes, advance)):
            try:
                add({**line.record, **outcome.unwrap().to_dict(), "line": line.number})
            except DiseError as error:
                if error is not outcome.error and not isinstance(error, InputError):
                    raise
                num_failed += 1
                print(f"dise: line {line.number}: {error}", file=sys.stderr)
    return num_failed


def text_or_ids(record: Record, field: str) -> str | list[int]:
    """Return record[field], a text, or record[field + "_ids"], token ids. Raises InputError unless
    exactly one of them is there and valid.
    """
    text, ids = record.get(field), record.get(f"{field}_ids")
    if (text is None) == (ids is None):
        raise InputError(f'needs either "{field}" (text) or "{field}_ids" (token ids)', field)
    if ids is not None:
        if not isinstance(ids, list) or not all(type(token_id) is int for token_id in ids):
            raise InputError(f'"{field}_ids" must be a list of integers', field)
        return ids
    if not isinstance(text, str):
        raise InputError(f'"{field}" must be a text, not {text!r:.40}', field)
    return text


def optional_text_or_ids(record: Record, field: str) -> str | list[int]:
    """Return the same, or an empty text if neither is there."""
    if record.get(field) is None and record.get(f"{field}_ids") is None:
        return ""
    return text_or_ids(record, field)


def _plan(line: Line, plan_of: PlanOf) -> Plan[RequestOutput]:
    if line.problem is not None:
        raise InputError(line.problem)
    return (yield from plan_of(line.record))


def _parse(number: int, line: bytes) -> Line:
    try:
        return Line(number, parse(line))
    except InputError as error:
        return Line(number, {}, str(error))


@contextmanager
def _open_to_read(path: Path) -> Iterator[BinaryIO]:
    if path == STANDARD:
        yield sys.stdin.buffer
        return
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise InputError(f"cannot read --input {path}: {error.strerror}", "input") from error


def _is_same(given: Path, output: Path) -> bool:
    """Return whether both are one regular file, by whatever names."""
    pair = [_file_at(path, number) for number, path in enumerate((given, output))]
    return pair[0] is not None and pair[0] == pair[1]


def _file_at(path: Path, standard: int) -> tuple[int, int] | None:
    """Return device and inode of a regular file, or of what `standard` is open on for "-"."""
    try:
        found = os.fstat(standard) if path == STANDARD else path.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def _print(record: Record) -> None:
    line = encoded(record).decode()
    try:
        print(line, end="", flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise DiseError(f"cannot write to standard output: {error.strerror}") from error
