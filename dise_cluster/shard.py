"""Makes shards: each from its own rows, whole or not at all, the same wherever it is made."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Generic

from dise_app.files.lines import encoded
from dise_app.files.runner import P, Work
from dise_app.files.texts import replacing, write_json
from dise_app.terminal.progress import in_order
from dise_cluster.answers import check_names, row_seed, told
from dise_cluster.columns import shard_columns, with_columns
from dise_cluster.folder import Manifest, claim, manifest_path, sha256_of, shard_path, write_lines
from dise_cluster.rows import CorpusRow, ShardRows, ending_of, read_shard
from dise_core import LLM, InputError, Plan, RequestOutput, SamplingParams
from dise_core.records import Record
from dise_core.scoring.calibration import fingerprint

PACKAGES = ("dise", "torch", "transformers", "numpy")


@dataclass(frozen=True, slots=True)
class ShardJob(Generic[P]):
    """All shards of a run; another process may have it. files: the input; folder: the output."""

    work: Work[P]
    files: tuple[Path, ...]
    folder: Path
    num_shards: int

    def path(self, index: int) -> Path:
        """Return where shard `index` stands; the first is 1."""
        ending = ending_of(self.files[0])
        return shard_path(self.folder, self.work.command, index, self.num_shards, ending)

    def claim(self, llm: LLM) -> str:
        """Return the run's digest. Raises InputError if the folder is of another run, and for what
        would fail every row.
        """
        check_names(llm, self.work.params)
        run = {
            **self.work.settings(llm),
            "fingerprint": fingerprint(llm.predictor),
            "num_shards": self.num_shards,
            "ending": ending_of(self.files[0]),
            "input": [[path.name, path.stat().st_size] for path in self.files],
        }
        return claim(self.folder, run)

    def make(self, llm: LLM, run: str, index: int) -> tuple[Manifest, bool]:
        """Return the manifest of a shard, and whether it was made now and not found whole. run: its
        digest. Raises the error of a row that is no fault of the row.
        """
        shard = read_shard(self.files, index, self.num_shards)
        if shard.corrupt and not shard.num_total:
            raise InputError(f"no file can be read: {shard.corrupt}", "input")
        path = self.path(index)
        found = Manifest.of(path)
        if found is not None and (found.run, found.rows) == (run, shard.digest):
            return found, False
        outcomes = in_order(llm, shard.rows, lambda row: self._plan(llm, row), lambda _: None)
        answers = [told(outcome) for _, outcome in outcomes]
        with replacing(path) as part:
            self._write(part, shard, answers)
            sha256 = sha256_of(part)
        manifest = Manifest(
            shard=index,
            num_shards=self.num_shards,
            run=run,
            rows=shard.digest,
            num_rows=len(answers),
            num_errors=sum("error" in answer for answer in answers),
            total=shard.num_total,
            corrupt=shard.corrupt,
            versions={name: version(name) for name in PACKAGES},
            sha256=sha256,
        )
        write_json(manifest_path(path), manifest.model_dump())
        return manifest, True

    def _plan(self, llm: LLM, row: CorpusRow) -> Plan[RequestOutput]:
        if row.problem is not None:
            raise InputError(row.problem)
        params = self.work.params
        if isinstance(params, SamplingParams):
            seed = row_seed(params.seed or 0, row.record.get("id", row.number))
            params = params.model_copy(update={"seed": seed})
        return (yield from self.work.plan_of(llm.planner, row.record, params))

    def _write(self, path: Path, shard: ShardRows, answers: list[Record]) -> None:
        if ending_of(self.files[0]) != "parquet":
            pairs = zip(shard.rows, answers, strict=True)
            lines = [encoded({**row.record, **answer, "line": row.number}) for row, answer in pairs]
            write_lines(path, lines, ending_of(self.files[0]))
            return
        import pyarrow
        from pyarrow.parquet import write_table

        table = pyarrow.concat_tables(shard.tables, promote_options="default")
        columns = shard_columns([row.number for row in shard.rows], answers)
        write_table(with_columns(table, columns), path, compression="zstd")
