"""The rows of a shard: which they are is fixed by the input alone, before anything runs."""

from __future__ import annotations

import glob
import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from dise_app.files.lines import lines_of, parse, without_bom
from dise_core import DiseError, InputError
from dise_core.errors import error_line
from dise_core.records import Record

if TYPE_CHECKING:
    import pyarrow

ENDINGS = {".parquet": "parquet", ".gz": "jsonl.gz", ".zst": "jsonl.zst"}
"""What shards' names end in, by the suffix of the input's files; for any other it is jsonl."""


@dataclass(frozen=True, slots=True)
class CorpusRow:
    """A row: its number from 1 over all files, and its record, or what is wrong with it."""

    number: int
    record: Record
    problem: str | None = None


@dataclass(slots=True)
class ShardRows:
    """The rows of one shard.

    num_total: rows of all shards. corrupt: what is wrong with files that cannot be read to their
    ends, by name. tables: parquet's rows as they came, after an empty table with their columns.
    """

    rows: list[CorpusRow] = field(default_factory=list)
    num_total: int = 0
    corrupt: dict[str, str] = field(default_factory=dict)
    tables: list[pyarrow.Table] = field(default_factory=list)

    @property
    def digest(self) -> str:
        """SHA-256 of the rows and their numbers."""
        digest = hashlib.sha256()
        for row in self.rows:
            digest.update(json.dumps([row.number, row.record, row.problem], default=str).encode())
        return digest.hexdigest()


def input_files(pattern: Path) -> list[Path]:
    """Return the file, the files of a folder, or those that a pattern names, sorted by path.
    Raises InputError for none, and for files of several kinds.
    """
    wanted = pattern / "*" if pattern.is_dir() else pattern
    found = [pattern] if pattern.is_file() else map(Path, glob.glob(str(wanted), recursive=True))
    files = sorted(path.resolve() for path in found if path.is_file())
    if not files:
        raise InputError(f"--input {pattern} names no file", "input")
    if len(kinds := sorted({ending_of(path) for path in files})) > 1:
        raise InputError(f"--input {pattern} names files of several kinds: {kinds}", "input")
    return files


def ending_of(path: Path) -> str:
    """Return what names of shards end in, for a file of the input."""
    return ENDINGS.get(path.suffix, "jsonl")


def read_shard(files: Sequence[Path], index: int, num_shards: int) -> ShardRows:
    """Return the rows of shard `index`, from 1: every num_shards-th line that is not blank, or row
    group of parquet. Raises DiseError if the system cannot read a file.
    """
    shard = ShardRows()
    turns = (number % num_shards == index - 1 for number in count())
    add = _add_groups if ending_of(files[0]) == "parquet" else _add_lines
    for path in files:
        with _naming(path.name, shard):
            add(path, shard, turns)
    return shard


def _add_lines(path: Path, shard: ShardRows, turns: Iterator[bool]) -> None:
    with _opened(path) as file:
        for number, line in enumerate(lines_of(file)):
            text = line if number else without_bom(line)
            if text.strip():
                shard.num_total += 1
                if next(turns):
                    shard.rows.append(_row(shard.num_total, text))


def _row(number: int, line: bytes) -> CorpusRow:
    try:
        return CorpusRow(number, parse(line))
    except InputError as error:
        return CorpusRow(number, {}, f"the line {error}")


def _add_groups(path: Path, shard: ShardRows, turns: Iterator[bool]) -> None:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        if not shard.tables:
            shard.tables.append(file.schema_arrow.empty_table())
        for group in range(file.num_row_groups):
            first = shard.num_total + 1
            shard.num_total += file.metadata.row_group(group).num_rows
            if next(turns):
                with _naming(f"{path.name}, row group {group}", shard):
                    table = file.read_row_group(group)
                    shard.rows += map(CorpusRow, count(first), table.to_pylist())
                    shard.tables.append(table)


@contextmanager
def _naming(name: str, shard: ShardRows) -> Iterator[None]:
    """Note what a corrupt file raises, by its name; what the system raises has an errno."""
    try:
        yield
    except (OSError, EOFError, zlib.error, ValueError) as error:
        if getattr(error, "errno", None) is not None:
            raise DiseError(f"cannot read {name}: {error_line(error)}") from error
        shard.corrupt[name] = error_line(error)


def _opened(path: Path) -> BinaryIO:
    if path.suffix == ".gz":
        return cast("BinaryIO", gzip.open(path))
    if path.suffix == ".zst":
        import pyarrow

        stream = pyarrow.input_stream(str(path), compression="zstd")
        return cast("BinaryIO", io.BufferedReader(stream))
    return path.open("rb")
