"""JSON Lines in and out: bad lines are reported and skipped; output keeps the input's order."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import typer

from dise_app.texts import whole_lines
from dise_core.engine import Outcome
from dise_core.errors import InputError
from dise_core.llm import LLM
from dise_core.outputs import RequestOutput
from dise_core.reading import Plan
from dise_core.records import Record

STANDARD = Path("-")

Answer = Outcome[RequestOutput]

PlanOf = Callable[[Record], Plan[RequestOutput]]
"""Returns the plan that answers a record."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the input: its number from 1, and its record, or the problem with it."""

    number: int
    record: Record
    problem: str | None = None


def read_lines(path: Path) -> Iterator[Line]:
    """Yield the non-blank lines of a file. Raises InputError if it cannot be read."""
    with _open_to_read(path) as lines:
        for number, text in enumerate(lines, start=1):
            if text.strip():
                yield _parse(number, text)


def run_file(llm: LLM, path: Path, output: Path | None, plan_of: PlanOf, resume: bool) -> None:
    """Answer every line of a file. Raises typer.Exit(1) if any line failed, InputError for
    unsuitable files.
    """
    output = output or STANDARD
    if output != STANDARD and path.resolve() == output.resolve():
        raise InputError(f"--input and --output are the same file {path}", "output")
    if resume and output == STANDARD:
        raise InputError("--resume needs --output FILE", "resume")
    lines = list(read_lines(path))
    if not lines:
        raise InputError(f"--input {path} holds no line", "input")
    if complete(llm, lines, output, plan_of, resume):
        raise typer.Exit(1)


def complete(llm: LLM, lines: list[Line], output: Path, plan_of: PlanOf, resume: bool) -> int:
    """Run a plan for every line and write the answers; return how many lines failed.

    An answer also has the input line's keys that it does not define itself, and the line's number
    as "line". A line that fails is reported on standard error and not written. Each answer is
    written as soon as all lines before it have ended.
    """
    from dise_app.cli.progress import progress_bar

    num_failed = 0
    with _open_to_write(output, resume) as (file, last_done), progress_bar(len(lines)) as advance:
        todo = [line for line in lines if line.number > last_done]
        advance(len(lines) - len(todo))
        plans = (_plan(line, plan_of) for line in todo)
        for line, outcome in _in_order(todo, llm.run(plans)):
            advance(1)
            if outcome.result is not None:
                record = {**line.record, **outcome.result.to_dict(), "line": line.number}
                print(
                    json.dumps(record, ensure_ascii=False, allow_nan=False), file=file, flush=True
                )
            else:
                num_failed += 1
                print(f"dise: line {line.number}: {outcome.error}", file=sys.stderr)
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


def _in_order(lines: list[Line], outcomes: Iterable[Answer]) -> Iterator[tuple[Line, Answer]]:
    early: dict[int, Answer] = {}
    index = 0
    for outcome in outcomes:
        early[outcome.index] = outcome
        while index in early:
            yield lines[index], early.pop(index)
            index += 1


def _parse(number: int, text: str) -> Line:
    try:
        record = json.loads(text)
    except ValueError as error:
        return Line(number, {}, f"is not JSON: {error}")
    if not isinstance(record, dict):
        return Line(number, {}, f"is not a JSON object: {text.strip():.60}")
    return Line(number, record)


@contextmanager
def _open_to_read(path: Path) -> Iterator[TextIO]:
    if path == STANDARD:
        yield sys.stdin
        return
    try:
        with path.open(encoding="utf-8", errors="surrogateescape") as file:
            yield file
    except OSError as error:
        raise InputError(f"cannot read --input {path}: {error.strerror}", "input") from error


@contextmanager
def _open_to_write(path: Path, resume: bool) -> Iterator[tuple[TextIO, int]]:
    """Yield the file, and the number of the last input line that it already answers. Raises
    InputError if it cannot be written or resumed.
    """
    if path == STANDARD:
        yield sys.stdout, 0
        return
    try:
        last_done = _last_line_done(path) if resume else 0
        with path.open("a" if last_done else "w", encoding="utf-8") as file:
            yield file, last_done
    except OSError as error:
        raise InputError(f"cannot write --output {path}: {error.strerror}", "output") from error


def _last_line_done(path: Path) -> int:
    """Return the number of the last input line that the file answers, 0 for none; an incomplete
    last line is removed. Raises InputError for a file that dise did not write.
    """
    lines = whole_lines(path)
    try:
        return int(json.loads(lines[-1])["line"]) if lines else 0
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"cannot resume: the last line of {path} is none that dise wrote", "resume"
        ) from error
