"""The rows of a shard, which the input alone determines."""

from __future__ import annotations

import glob
import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from dise_app.files.lines import BUFFER, Line, lines_of, without_bom
from dise_core import DiseError, InputError
from dise_core.errors import error_line

if TYPE_CHECKING:
    import pyarrow

ENDINGS = {
    ".parquet": "parquet", ".gz": "jsonl.gz", ".zst": "jsonl.zst", ".zstd": "jsonl.zst",
}  # fmt: skip
"""The ending of shards by the suffix of the input's files, jsonl for any other."""

MAGIC = {b"PAR1": ".parquet", b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst"}
"""The first bytes of files other than JSON lines, and what their names should end in."""


@dataclass(slots=True)
class ShardRows:
    """The rows of one shard, which are numbered from 1 over all files.

    num_total: rows of all shards. source: SHA-256 of the input's lines, or of parquet's
    footers.
    corrupt: what is wrong with files that cannot be read to their ends, by name. tables:
    parquet's rows as they came, after an empty table with their columns.
    """

    rows: list[Line] = field(default_factory=list)
    num_total: int = 0
    source: hashlib._Hash = field(default_factory=hashlib.sha256)
    corrupt: dict[str, str] = field(default_factory=dict)
    tables: list[pyarrow.Table] = field(default_factory=list)


def input_files(pattern: Path) -> list[Path]:
    """Return the file, the files of a folder, or those that a pattern names, sorted by
    path.
    Raises InputError for none, and for files of several kinds.
    """
    if pattern.is_dir():
        matches = list(pattern.iterdir())
    else:
        names = [str(pattern)] if pattern.is_file() else glob.glob(str(pattern), recursive=True)
        matches = [*map(Path, names)]
    paths = sorted(path.absolute() for path in matches if path.is_file())
    # A link may stand beside its file: the first name counts.
    files = sorted({path.resolve(): path for path in reversed(paths)}.values())
    if not files:
        raise InputError(f"--input {pattern} names no file", "input")
    if len(kinds := sorted({ending_of(path) for path in files})) > 1:
        raise InputError(f"--input {pattern} names files of several kinds: {kinds}", "input")
    return files


def ending_of(path: Path) -> str:
    """Return what names of shards end in, for a file of the input."""
    return ENDINGS.get(path.suffix.lower(), "jsonl")


def read_shard(files: Sequence[Path], index: int, num_shards: int) -> ShardRows:
    """Return the rows of shard `index`, from 1: every num_shards-th line that is not
    blank, or row group of parquet. Raises DiseError if the system cannot read a file.
    """
    shard = ShardRows()
    turns = (number % num_shards == index - 1 for number in count())
    add = _add_groups if ending_of(files[0]) == "parquet" else _add_lines
    for path in files:
        with _naming(path.name, shard):
            add(path, shard, turns)
    return shard


def _add_lines(path: Path, shard: ShardRows, turns: Iterator[bool]) -> None:
    with opened(path) as file:
        for number, line in enumerate(lines_of(file)):
            shard.source.update(line)
            text = line if number else without_bom(line)
            if text.strip():
                shard.num_total += 1
                if next(turns):
                    shard.rows.append(Line.read(shard.num_total, text, subject="the line "))


def _add_groups(path: Path, shard: ShardRows, turns: Iterator[bool]) -> None:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file, path.open("rb") as raw:
        raw.seek(-file.metadata.serialized_size - 8, io.SEEK_END)
        shard.source.update(raw.read())
        if not shard.tables:
            shard.tables.append(file.schema_arrow.empty_table())
        for group in range(file.num_row_groups):
            first = shard.num_total + 1
            shard.num_total += file.metadata.row_group(group).num_rows
            if next(turns):
                with _naming(f"{path.name}, row group {group}", shard):
                    table = file.read_row_group(group)
                    shard.rows += map(Line, count(first), _readable(table).to_pylist())
                    shard.tables.append(table)


def _readable(table: pyarrow.Table) -> pyarrow.Table:
    """Return the table without times: no verb reads them, and Python lacks some."""
    fields = enumerate(table.schema)
    return table.select([at for at, field in fields if not _holds_times(field.type)])


def _holds_times(kind: pyarrow.DataType) -> bool:
    from pyarrow.types import is_dictionary, is_temporal

    inner = [kind.field(at).type for at in range(kind.num_fields)]
    inner += [kind.value_type] if is_dictionary(kind) else []
    return bool(is_temporal(kind)) or any(map(_holds_times, inner))


@contextmanager
def _naming(name: str, shard: ShardRows) -> Iterator[None]:
    """Note a corrupt file's error by its name. Raise errors with an errno."""
    try:
        yield
    except (OSError, EOFError, zlib.error, ValueError) as error:
        if getattr(error, "errno", None) is not None:
            raise DiseError(f"cannot read {name}: {error_line(error)}") from error
        shard.corrupt[name] = error_line(error)


def opened(path: Path) -> BinaryIO:
    """Return the unpacked file. Raises ValueError if its content contradicts its name."""
    ending = ending_of(path)
    if ending == "jsonl.gz":
        return cast("BinaryIO", gzip.open(path))
    if ending == "jsonl.zst":
        import pyarrow

        stream = pyarrow.input_stream(str(path), compression="zstd")
        return cast("BinaryIO", io.BufferedReader(stream))
    file = io.BufferedReader(path.open("rb", 0), BUFFER)
    start = file.peek(4)[:4]
    if (suffix := next((MAGIC[magic] for magic in MAGIC if start.startswith(magic)), None)) is None:
        return file
    file.close()
    raise ValueError(f"its first bytes are no JSON lines; rename it to end in {suffix}")
