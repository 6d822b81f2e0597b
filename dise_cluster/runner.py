"""Options of shards, how a process makes them, and the lines at the end."""

from __future__ import annotations

import re
import sys
from functools import partial
from typing import TYPE_CHECKING, Self

import typer
from pydantic import Field, model_validator

from dise_app.files.runner import FileRunner, P, Work
from dise_core import InputError, SamplingParams
from dise_core.errors import shown
from dise_core.records import Fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from dise_cluster.folder import Manifest
    from dise_cluster.shard import Advance, ShardJob

    Maker = Callable[[Advance], Iterable[Manifest]]


class Shards(FileRunner):
    """Answers many files in shards, each a file that is written whole or not at all."""

    shard: str | None = None
    """Make only the i-th of n shards, as i/n, in the folder OUTPUT."""
    shards: int | None = Field(default=None, ge=1, lt=10**5)
    """Make all of this many shards in the folder OUTPUT; without it one for each file."""
    ray: str | None = None
    """Give the shards to workers of Ray: local starts one here, auto finds the one that
    runs, or its address."""
    workers: int | None = Field(default=None, ge=1, le=2**16)
    """Workers of Ray, each with a model of its own; without it one."""
    gpus_per_worker: float = Field(default=0, ge=0, le=64)
    """GPUs that Ray keeps for each worker."""
    cpus_per_worker: float = Field(default=1, gt=0, le=1024)
    """CPU cores that Ray keeps for each worker, with as many threads."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.shard is not None and (self.shards is not None or self.ray is not None):
            raise ValueError("--shard i/n makes one shard: leave out --shards and --ray")
        is_written = re.fullmatch("[0-9]{1,5}/[0-9]{1,5}", self.shard or "1/1")
        if not (is_written and 1 <= self.index <= self.num_shards(10**5)):
            raise ValueError(
                f"--shard is i/n with i from 1 to n, such as 3/4, not {shown(self.shard)}"
            )
        if self.ray is None and (self.workers or self.gpus_per_worker or self.cpus_per_worker != 1):
            raise ValueError("--workers, --gpus-per-worker and --cpus-per-worker need --ray")
        return self

    @property
    def index(self) -> int:
        """The number of the one shard to make, else 1."""
        return int((self.shard or "1").partition("/")[0])

    def num_shards(self, num_files: int) -> int:
        return self.shards or int((self.shard or f"1/{num_files}").partition("/")[2])

    def takes(self, files: Fields) -> bool:
        from dise_cluster.rows import ending_of

        path, output = files["input"], files["output"]
        if path is None:
            return False
        is_many = path.is_dir() or (not path.exists() and any(c in str(path) for c in "*?["))
        is_packed = ending_of(path) != "jsonl"
        is_asked = (self.shard, self.shards, self.ray) != (None, None, None)
        return is_asked or is_many or is_packed or (output is not None and output.is_dir())

    def run(self, work: Work[P]) -> None:
        from dise_app.terminal.progress import progress_bar

        job, numbers = self._job(work)
        make = self._maker(job, numbers)
        with progress_bar(len(numbers), parts="shards") as advance:
            manifests = list(make(advance))
        _summarize(job, manifests, len(numbers))

    def _maker(self, job: ShardJob[P], numbers: Sequence[int]) -> Maker:
        """Return what makes the shards; without Ray the model is loaded first."""
        if self.ray is not None:
            from dise_cluster.on_ray import made_on_ray

            resources = {"num_cpus": self.cpus_per_worker, "num_gpus": self.gpus_per_worker}
            manifests = made_on_ray(job, numbers, self.ray, self.workers or 1, **resources)
            return partial(_count, manifests)
        llm = job.work.load()
        run = job.claim(llm)
        return lambda advance: (job.make(llm, run, number, advance) for number in numbers)

    def _job(self, work: Work[P]) -> tuple[ShardJob[P], Sequence[int]]:
        """Return the job and its shards. Raises InputError for options that do not fit."""
        from dise_app.files.texts import check_folder
        from dise_cluster.rows import input_files
        from dise_cluster.shard import ShardJob

        folder, files = work.files["output"], tuple(input_files(work.files["input"]))
        if folder is None or str(folder) == "-" or folder.is_file():
            raise InputError("shards need --output FOLDER", "output")
        if work.files["overwrite"]:
            raise InputError("shards are not overwritten: remove them, or give --resume", "output")
        if isinstance(work.params, SamplingParams) and work.params.seed is None:
            raise InputError("shards need --seed, from which each row has its own", "seed")
        num_shards = self.num_shards(len(files))
        numbers = [self.index] if self.shard else range(1, num_shards + 1)
        job = ShardJob(work, files, folder.resolve(), num_shards)
        existing = next((path for path in map(job.path, numbers) if path.exists()), None)
        if existing is not None and not work.files["resume"]:
            raise InputError(f"{existing} exists already: --resume keeps what is whole", "output")
        check_folder(folder)
        return job, numbers


def _count(manifests: Iterable[Manifest], advance: Advance) -> Iterator[Manifest]:
    for manifest in manifests:
        advance(1)
        yield manifest


def _summarize(job: ShardJob[P], manifests: Sequence[Manifest], num_shards: int) -> None:
    """Print what was made. Raises typer.Exit(1) if a shard is missing, a file is corrupt,
    or no row has an answer.
    """
    from dise_cluster.folder import are_all_failed, corrupt_files, failures

    num_rows = sum(manifest.num_rows for manifest in manifests)
    num_errors = sum(manifest.num_errors for manifest in manifests)
    failed = f", of which {num_errors} failed" if num_errors else ""
    shards = f"{len(manifests)} of {num_shards} shards"
    print(f"dise: {num_rows} rows{failed}, in {shards} in {job.folder}", file=sys.stderr)
    corrupt = corrupt_files(manifests)
    for problem in (*failures(manifests), *corrupt):
        print(f"dise: {problem}", file=sys.stderr)
    if corrupt or are_all_failed(manifests) or len(manifests) < num_shards:
        raise typer.Exit(1)
