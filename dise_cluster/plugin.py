"""Corpora as a guest of the command: options of shards, and the lines at the end."""

from __future__ import annotations

import re
import sys
from collections import Counter
from typing import TYPE_CHECKING, Self

import typer
from pydantic import Field, model_validator

from dise_app.files.reasons import reasons
from dise_app.files.runner import FileRunner, P, Work
from dise_core import InputError, SamplingParams, hookimpl
from dise_core.errors import shown
from dise_core.records import Fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dise_cluster.shard import Shard, ShardJob

PER_WORKER = 16
"""Shards of each of Ray's workers, where the input has fewer files: a killed one loses a part."""


class Shards(FileRunner):
    """Answers many files in shards, each a file that is written whole or not at all."""

    shard: str | None = None
    """Make only the i-th of n shards, as i/n, in the folder OUTPUT; else one for each file."""
    ray: str | None = None
    """Give the shards to workers of Ray: local starts one here, auto finds the one that
    runs, or its address."""
    workers: int | None = Field(default=None, ge=1, le=2**16)
    """Workers of Ray, each with a model and, where there are any, a GPU of its own; else one."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.shard is not None and self.ray is not None:
            raise ValueError("--shard i/n makes one shard, and --ray all: leave out either")
        is_written = re.fullmatch("[0-9]{1,5}/[0-9]{1,5}", self.shard or "1/1")
        if not (is_written and 1 <= self.part[0] <= self.part[1]):
            raise ValueError(
                f"--shard is i/n with i from 1 to n, such as 3/4, not {shown(self.shard)}"
            )
        if self.ray is None and self.workers:
            raise ValueError("--workers are Ray's: give --ray, too")
        return self

    @property
    def part(self) -> tuple[int, int]:
        """The i and n of --shard."""
        index, _, num_shards = (self.shard or "1/1").partition("/")
        return int(index), int(num_shards)

    def takes(self, files: Fields) -> bool:
        from dise_cluster.rows import ending_of

        path, output = files["input"], files["output"]
        if path is None:
            return False
        is_many = path.is_dir() or (not path.exists() and any(c in str(path) for c in "*?["))
        is_packed = ending_of(path) != "jsonl"
        is_named = (self.shard, self.ray) != (None, None)
        return is_named or is_many or is_packed or (output is not None and output.is_dir())

    def run(self, work: Work[P]) -> None:
        from dise_app.terminal.progress import progress_bar

        job, numbers = self._job(work)
        if self.ray is not None:
            from dise_cluster.on_ray import made_on_ray

            with progress_bar(len(numbers), parts="shards") as advance:
                shards = list(made_on_ray(job, numbers, self.ray, self.workers or 1, advance))
        else:
            llm, digest = job.begin()
            with progress_bar(len(numbers), parts="shards") as advance:
                shards = [job.make(llm, digest, number, advance) for number in numbers]
        _summarize(job, shards, len(numbers))

    def _job(self, work: Work[P]) -> tuple[ShardJob[P], Sequence[int]]:
        """Return the job and its shards. Raises InputError for options that do not fit."""
        from dise_app.files.texts import check_folder
        from dise_cluster.rows import input_files
        from dise_cluster.shard import ShardJob, num_shards_in

        folder, files = work.files["output"], tuple(input_files(work.files["input"]))
        if folder is None or str(folder) == "-" or folder.is_file():
            raise InputError("shards need --output FOLDER", "output")
        if work.files["overwrite"]:
            raise InputError("shards are not overwritten: remove them, or give --resume", "output")
        if isinstance(work.params, SamplingParams) and work.params.seed is None:
            raise InputError("shards need --seed, from which each row has its own", "seed")
        num_shards = max(len(files), PER_WORKER * (self.workers or 1) if self.ray else 1)
        if self.shard is not None:
            num_shards = self.part[1]
        elif work.files["resume"]:
            num_shards = num_shards_in(folder) or num_shards
        numbers = [self.part[0]] if self.shard else range(1, num_shards + 1)
        job = ShardJob(work, files, folder.resolve(), num_shards)
        existing = next((path for path in map(job.path, numbers) if path.exists()), None)
        if existing is not None and not work.files["resume"]:
            raise InputError(f"{existing} exists already: --resume keeps what is whole", "output")
        check_folder(folder)
        return job, numbers


def _summarize(job: ShardJob[P], shards: Sequence[Shard], num_shards: int) -> None:
    """Print what is there. Raises typer.Exit(1) if a shard is missing, a file is corrupt,
    or no row has an answer.
    """
    problems = sum((Counter(shard.problems) for shard in shards), Counter[str]())
    corrupt = {name: why for shard in shards for name, why in shard.corrupt.items()}
    num_rows = sum(shard.num_rows for shard in shards)
    num_failed = sum(shard.num_failed for shard in shards)
    failed = f", of which {num_failed} failed" if num_failed else ""
    lines = [f"{num_rows} rows{failed}, in {len(shards)} of {num_shards} shards in {job.folder}"]
    if job.work.files["resume"]:
        num_missing = sum(shard.num_missing for shard in shards)
        num_doubled = sum(shard.num_doubled for shard in shards)
        lines.append(f"{num_missing} rows were missing and {num_doubled} doubled, and are made")
    lines += reasons(problems.items())
    lines += [f"{name} is corrupt, and read up to there: {why}" for name, why in corrupt.items()]
    for line in lines:
        print(f"dise: {line}", file=sys.stderr)
    if corrupt or 0 < num_rows == num_failed or len(shards) < num_shards:
        raise typer.Exit(1)


@hookimpl
def dise_file_runners() -> dict[str, type[Shards]]:
    """Return the runner of shards."""
    return {"shards": Shards}
