"""Makes shards, each from its own rows, whole or not at all, equal everywhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Generic

from dise_app.files.lines import Line, encoded
from dise_app.files.reasons import commonest
from dise_app.files.runner import Answered, P, Work
from dise_app.files.texts import replacing, write_json
from dise_app.terminal.progress import in_order
from dise_cluster.answers import (
    LINE,
    WHOLE,
    columns_of,
    concatenate,
    row_seed,
    to_json,
    with_columns,
)
from dise_cluster.folder import Manifest, claim, manifest_path, packed, sha256_of, shard_path
from dise_cluster.rows import ShardRows, ending_of, read_shard
from dise_core import LLM, InputError, Plan, SamplingParams
from dise_core.records import Record
from dise_core.scoring.calibration import fingerprint

if TYPE_CHECKING:
    import pyarrow

Advance = Callable[[float], None]

PACKAGES = ("dise", "torch", "transformers", "numpy")


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
        return shard_path(self.folder, self.work.command, index, self.num_shards, self.ending)

    def claim(self, llm: LLM) -> str:
        """Return the run's digest. Raises InputError if the folder is of another run, or
        if params would fail every row.
        """
        llm.catalog.check(self.work.params)
        run = {
            **self.work.settings(llm),
            "fingerprint": fingerprint(llm.predictor),
            "num_shards": self.num_shards,
            "ending": self.ending,
            "input": [[path.name, path.stat().st_size] for path in self.files],
        }
        return claim(self.folder, run, self.work.usual)

    def make(self, llm: LLM, run: str, index: int, advance: Advance = lambda _: None) -> Manifest:
        """Make a shard, if it is not whole, and return its manifest. run: the run's
        digest. advance is called with shares of the shard, 1 in all. Raises errors that
        are not a row's fault.
        """
        shard, path = read_shard(self.files, index, self.num_shards), self.path(index)
        digest = shard.digest
        if shard.corrupt and not shard.num_total:
            raise InputError(f"no file can be read: {shard.corrupt}", "input")
        old = Manifest.of(path)
        source = shard.source.hexdigest()
        if old is not None and (old.run, old.rows, old.source) == (run, digest, source):
            advance(1)
            return old
        table = concatenate(shard.tables, self.work.params) if self.ending == "parquet" else None
        share = 1 / max(len(shard.rows), 1)
        advance(0 if shard.rows else 1)
        plan = partial(self._plan, llm)
        outcomes = in_order(llm, shard.rows, plan, lambda count: advance(count * share))
        answers = [to_json(outcome) for _, outcome in outcomes]
        with replacing(path) as part:
            self._write(part, shard, table, answers)
            sha256 = sha256_of(part)
        problems = [answer["error"]["message"] for answer in answers if "error" in answer]
        manifest = Manifest(
            shard=index,
            run=run,
            rows=digest,
            source=source,
            num_rows=len(answers),
            num_errors=len(problems),
            reasons=commonest((problem, 1) for problem in problems),
            total=shard.num_total,
            corrupt=shard.corrupt,
            versions={name: version(name) for name in PACKAGES},
            sha256=sha256,
        )
        write_json(manifest_path(path), manifest.model_dump())
        return manifest

    def _plan(self, llm: LLM, row: Line) -> Plan[Answered]:
        record, params = row.checked(), self.work.params
        if isinstance(params, SamplingParams):
            row_id = record.get("id")
            seed = row_seed(params.seed or 0, row.number if row_id is None else row_id)
            params = params.model_copy(update={"seed": seed})
        return (yield from self.work.plan_of(llm.planner, record, params))

    def _write(
        self, path: Path, shard: ShardRows, table: pyarrow.Table | None, answers: list[Record]
    ) -> None:
        if table is None:
            pairs = zip(shard.rows, answers, strict=True)
            lines = [encoded({**row.record, **answer, "line": row.number}) for row, answer in pairs]
            path.write_bytes(packed(b"".join(lines), self.ending))
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
