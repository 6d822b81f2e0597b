"""JSON lines: read with a bound on each line, checked, and encoded."""

import codecs
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, NoReturn, Self

from dise_core import InputError
from dise_core.records import JsonFields, Record, is_deeper

BUFFER = 2**20
"""Bytes that are read at one time: Python's own 8,192 take ten times as long."""

MAX_LINE = 2**24
"""The most bytes in a line that others wrote."""

MAX_DEPTH = 64
"""The most lists and objects around one value."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line or row of the input: its number from 1, and its record or its problem."""

    number: int
    record: Record
    problem: str | None = None

    @classmethod
    def read(cls, number: int, text: bytes, limit: int = MAX_LINE, subject: str = "") -> Self:
        """Return a line as `parse` reads it. subject: what the problem begins with."""
        try:
            return cls(number, parse(text, limit))
        except InputError as error:
            return cls(number, {}, f"{subject}{error}")

    def checked(self) -> Record:
        """Return the record. Raises InputError with the problem, if there is one."""
        if self.problem is not None:
            raise InputError(self.problem)
        return self.record


def lines_of(file: BinaryIO, limit: int = MAX_LINE) -> Iterator[bytes]:
    """Yield the lines with their ends; of longer ones the first `limit` + 1 bytes."""
    while line := file.readline(limit + 1):
        piece = line
        while len(line) > limit and piece and not piece.endswith(b"\n"):
            piece = file.readline(2**20)
        yield line


def without_bom(line: bytes) -> bytes:
    """Return a file's first line without a byte order mark."""
    return line.removeprefix(codecs.BOM_UTF8)


def parse(line: bytes, limit: int = MAX_LINE) -> dict[str, object]:
    """Return the JSON object in a line. Raises InputError, a sentence about "the line"
    without its subject, for anything else, and for what could not be written again: NaN,
    lone surrogates.
    """
    if len(line) > limit:
        raise InputError(f"is longer than {limit} bytes")
    try:
        text = line.decode()
        record = json.loads(text, parse_constant=_refuse)
    except UnicodeDecodeError as error:
        raise InputError(f"is not UTF-8: byte {line[error.start]:#04x}, {error.reason}") from None
    except ValueError as error:
        raise InputError(f"is not JSON: {error}") from None
    except RecursionError:
        raise InputError(f"is nested deeper than {MAX_DEPTH} lists and objects") from None
    if not isinstance(record, dict):
        start = "".join(c if c.isprintable() else "\ufffd" for c in text.strip()[:60])
        raise InputError(f"is not a JSON object: {start}")
    if is_deeper(record, MAX_DEPTH):
        raise InputError(f"is nested deeper than {MAX_DEPTH} lists and objects")
    encoded(record)
    return record


def encoded(record: JsonFields) -> bytes:
    """Encode a line. Raises InputError, without a subject, for what JSON cannot hold."""
    try:
        return (json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n").encode()
    except UnicodeEncodeError as error:
        surrogate = ascii(error.object[error.start])
        raise InputError(f"holds {surrogate}, half of a surrogate pair") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"holds what JSON cannot express: {error}") from None


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")
