"""Makes shards, each from its own rows, whole or not at all, equal everywhere."""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic

from dise_app.files.linefile import MAX_OWN_LINE
from dise_app.files.lines import Line, encoded, lines_of, parse
from dise_app.files.reasons import commonest
from dise_app.files.run_folder import RunFolder, note_in
from dise_app.files.runner import Answered, P, Work
from dise_app.files.texts import json_file, replacing
from dise_app.terminal.progress import in_order
from dise_cluster.columns import LINE, WHOLE, columns_of, concatenate, seeded, to_json, with_columns
from dise_cluster.rows import ShardRows, ending_of, opened, read_shard
from dise_core import LLM, InputError, Plan
from dise_core.files import refuse_special
from dise_core.records import Record
from dise_core.scoring.calibration import fingerprint

if TYPE_CHECKING:
    import pyarrow

RUN_FILE = "dise-run.json"
"""What the answers of all shards depend on."""


@dataclass(frozen=True, slots=True)
class Shard:
    """What a shard holds. problems: why rows failed, with counts, the commonest. corrupt:
    see ShardRows. num_missing, num_doubled: rows that its file lacked, or held twice,
    before it was made.
    """

    index: int
    num_rows: int
    num_failed: int
    problems: dict[str, int]
    corrupt: dict[str, str]
    num_missing: int = 0
    num_doubled: int = 0


@dataclass(frozen=True, slots=True)
class ShardJob(Generic[P]):
    """All shards of a run. It can be pickled. files: the input; folder: the output."""

    work: Work[P]
    files: tuple[Path, ...]
    folder: Path
    num_shards: int

    @property
    def ending(self) -> str:
        """What the shards' names end in."""
        return ending_of(self.files[0])

    def path(self, index: int) -> Path:
        """Return where shard `index` stands; the first is 1."""
        name = f"{self.work.command}-{index:05}-of-{self.num_shards:05}.{self.ending}"
        return self.folder / name

    def begin(self) -> tuple[LLM, str]:
        """Return the model and the input's digest, once the folder is this run's. Raises
        InputError if it is another's, if no file can be read, or if params would fail every
        row.
        """
        llm = self.work.load()
        llm.planner.check(self.work.params)
        nothing = read_shard(self.files, 0, self.num_shards)
        if nothing.corrupt and not nothing.num_total:
            raise InputError(f"no file can be read: {nothing.corrupt}", "input")
        digest = nothing.source.hexdigest()
        run = {
            **self.work.settings(llm),
            "fingerprint": fingerprint(llm.predictor),
            "num_shards": self.num_shards,
            "ending": self.ending,
            "input": [[path.name, path.stat().st_size] for path in self.files],
            "input_digest": digest,
        }
        usual = {**self.work.usual, "input_digest": older_digest(self.folder) or digest}
        RunFolder(self.folder / RUN_FILE, run, usual).claim()
        return llm, digest

    def make(
        self, llm: LLM, digest: str, index: int, advance: Callable[[float], None] = lambda _: None
    ) -> Shard:
        """Make a shard, unless it is there with its rows, each once. digest: the input's.
        advance is called with shares of the shard, 1 in all. Raises errors that are not a
        row's fault.
        """
        shard, path = read_shard(self.files, index, self.num_shards), self.path(index)
        if shard.source.hexdigest() != digest:
            raise InputError(
                "the files of --input changed while their rows were answered. Use another "
                "--output, or put the files back and give --resume.",
                "input",
            )
        before = rows_in(path, shard)
        times = Counter(number for number, _ in before or ())
        if before is not None and times == Counter(row.number for row in shard.rows):
            advance(1)
            failures = [failure for _, failure in before if failure is not None]
            return Shard(index, len(before), len(failures), counts(failures), shard.corrupt)
        table = concatenate(shard.tables, self.work.params) if self.ending == "parquet" else None
        share = 1 / max(len(shard.rows), 1)
        advance(0 if shard.rows else 1)

        def plan(row: Line) -> Plan[Answered]:
            record = row.checked()
            row_id = row.number if record.get("id") is None else record["id"]
            params = seeded(self.work.params, row_id)
            return (yield from self.work.plan_of(llm.planner, record, params))

        outcomes = in_order(llm, shard.rows, plan, lambda count: advance(count * share))
        answers = [to_json(outcome) for _, outcome in outcomes]
        with replacing(path) as part:
            self._write(part, shard, table, answers)
        failures = [answer["error"]["message"] for answer in answers if "error" in answer]
        facts = len(answers), len(failures), counts(failures), shard.corrupt
        num_missing = sum(not times[row.number] for row in shard.rows)
        return Shard(index, *facts, num_missing, sum(count > 1 for count in times.values()))

    def _write(
        self, path: Path, shard: ShardRows, table: pyarrow.Table | None, answers: list[Record]
    ) -> None:
        if table is None:
            pairs = zip(shard.rows, answers, strict=True)
            lines = [encoded({**row.record, **answer, "line": row.number}) for row, answer in pairs]
            path.write_bytes(_packed(b"".join(lines), self.ending))
            return
        import pyarrow
        from pyarrow.parquet import write_table

        texts = [json.dumps(answer, ensure_ascii=False, allow_nan=False) for answer in answers]
        columns = {
            LINE: pyarrow.array([row.number for row in shard.rows], pyarrow.int64()),
            **columns_of(answers, self.work.params),
            WHOLE: pyarrow.array(texts, pyarrow.string()),
        }
        write_table(with_columns(table, columns), path, compression="zstd")


def counts(failures: Iterable[str]) -> dict[str, int]:
    """Return the commonest failures with their counts."""
    return commonest((failure, 1) for failure in failures)


def rows_in(path: Path, shard: ShardRows) -> list[tuple[int, str | None]] | None:
    """Return the numbers of the rows in a shard's file, each with its failure, if it failed;
    None if there is no such file, or one that is not whole.
    """
    try:
        refuse_special(path)
        return list(_parquet_rows(path) if path.suffix == ".parquet" else _lines(path, shard))
    except (OSError, EOFError, zlib.error, ValueError, LookupError, InputError):
        return None


def _lines(path: Path, shard: ShardRows) -> Iterator[tuple[int, str | None]]:
    records = {row.number: row.record for row in shard.rows}
    with opened(path) as file:
        for line in lines_of(file, MAX_OWN_LINE):
            answer = parse(line, MAX_OWN_LINE)
            number = int(str(answer["line"]))
            error = answer.get("error")
            # The input's own rows may have an `error`, too: a failed one has nothing else new.
            is_failed = answer == {**records.get(number, {}), "error": error, "line": number}
            yield number, str(error["message"]) if is_failed and isinstance(error, dict) else None


def _parquet_rows(path: Path) -> Iterator[tuple[int, str | None]]:
    from pyarrow.parquet import read_table

    table = read_table(path, columns=[LINE, "dise_error"])
    yield from zip(table[LINE].to_pylist(), table["dise_error"].to_pylist(), strict=True)


def num_shards_in(folder: Path) -> int | None:
    """Return how many shards a folder's run has; None without one."""
    path = folder / RUN_FILE
    return note_in(path).get("num_shards") if path.exists() else None


def older_digest(folder: Path) -> str | None:
    """Return the digest of the input that an older version noted beside each shard, not in
    the run's file.
    """
    for path in sorted(folder.glob("*.manifest.json")):
        with suppress(InputError):
            manifest = json_file(path)
            return manifest.get("source") if isinstance(manifest, dict) else None
    return None


def _packed(content: bytes, ending: str) -> bytes:
    """Return what a file with that ending holds: the same bytes for the same content."""
    if ending == "jsonl.gz":
        return gzip.compress(content, mtime=0)
    if ending == "jsonl.zst":
        import pyarrow

        return bytes(pyarrow.compress(content, "zstd", asbytes=True))
    return content
