"""Ray gives the numbers of shards to workers, starts dead workers again and places them on GPUs.
That each row is there once is the shards' doing, not Ray's.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Generic

from dise_app.files.runner import P
from dise_core import LLM, DiseError, InputError
from dise_core.errors import error_line

if TYPE_CHECKING:
    import ray
    from ray.actor import ActorHandle

    from dise_cluster.folder import Manifest
    from dise_cluster.shard import ShardJob

RESTARTS = {"max_restarts": 2, "max_task_retries": 2}
"""How often a worker is started again, and with it a shard, before Ray gives both up."""

INTERVAL = 10.0
"""The least seconds between two lines of progress."""

MadeShard = tuple["Manifest", bool]


class ShardWorker(Generic[P]):
    """Makes shards, one at a time, with a model that it loads for the first."""

    def __init__(self, job: ShardJob[P]) -> None:
        self._job = job
        self._loaded: tuple[LLM, str] | None = None

    def make(self, number: int | None) -> MadeShard | None:
        """Return what ShardJob.make returns; for None only load the model."""
        try:
            if self._loaded is None:
                llm = self._job.work.load()
                self._loaded = llm, self._job.claim(llm)
            return None if number is None else self._job.make(*self._loaded, number)
        except InputError as error:
            raise InputError(str(error)) from None  # not every subclass can be pickled
        except DiseError as error:
            raise DiseError(error_line(error)) from None


def made_on_ray(
    job: ShardJob[P], numbers: Sequence[int], address: str, num_workers: int, **kept: float
) -> Iterator[Manifest]:
    """Yield the manifests of shards as workers finish them. A shard that is given up is named and
    left out. Raises InputError as a worker does, and DiseError when shards are given up one after
    the other, as many as there are workers. kept: num_cpus and num_gpus of each.
    """
    pool = _Pool(job, address, min(num_workers, len(numbers)), kept)
    waiting, num_lost, progress = deque(numbers), 0, _Progress(len(numbers))
    while waiting or pool.is_making:
        number, made, problem = pool.next(waiting)
        if made is not None:
            num_lost = 0
            progress.count(*made)
            yield made[0]
        elif problem is not None:
            num_lost += 1
            what = "a worker" if number is None else f"shard {number}"
            print(f"dise: {what} is given up: {problem}", file=sys.stderr)
            if num_lost >= pool.size:
                raise DiseError(f"{num_lost} failures in a row; --resume goes on where this ended")


class _Pool(Generic[P]):
    """Workers. Each gets a shard once its model is loaded, so that none waits for a node."""

    def __init__(
        self, job: ShardJob[P], address: str, size: int, kept: Mapping[str, float]
    ) -> None:
        import ray

        self.size = size
        if not ray.is_initialized():
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            local = {"num_cpus": math.ceil(size * kept["num_cpus"]), "include_dashboard": False}
            own = local if address == "local" else {}
            ray.init(address=address, log_to_driver=False, **own)
        self._class, self._job = ray.remote(**kept, **RESTARTS)(ShardWorker), job
        self._running: dict[ray.ObjectRef, tuple[ActorHandle, int | None]] = {}
        for _ in range(size):
            self._give(self._new(), None)

    @property
    def is_making(self) -> bool:
        return any(number is not None for _, number in self._running.values())

    def next(self, waiting: deque[int]) -> tuple[int | None, MadeShard | None, str | None]:
        """Return the number of the next shard that ends, None for a model, and what came of it: the
        shard, or a problem. Its worker, or a new one, gets the next that waits.
        """
        import ray
        from ray.exceptions import RayActorError, RayTaskError

        [ended], _ = ray.wait(list(self._running))
        worker, number = self._running.pop(ended)
        made, problem = None, None
        try:
            made = ray.get(ended)
        except RayActorError as error:
            worker, problem = self._new(), error_line(error).partition(". ")[0]
        except RayTaskError as error:
            if isinstance(error.cause, InputError) or not isinstance(error.cause, DiseError):
                raise error.cause from error
            problem = str(error.cause)
        if waiting:
            self._give(worker, waiting.popleft())
        return number, made, problem

    def _new(self) -> ActorHandle:
        return self._class.remote(self._job)

    def _give(self, worker: ActorHandle, number: int | None) -> None:
        self._running[worker.make.remote(number)] = worker, number


class _Progress:
    """Tells of the shards that are there, with rows a second and the time that is left."""

    def __init__(self, num_left: int) -> None:
        self._num_left, self._num_made, self._rows = num_left, 0, 0
        self._started = self._told = time.monotonic()

    def count(self, manifest: Manifest, is_new: bool) -> None:
        self._num_left -= 1
        self._num_made += is_new
        self._rows += manifest.num_rows * is_new
        now = time.monotonic()
        if is_new and now - self._told > INTERVAL:
            self._told, seconds = now, now - self._started
            left = seconds / self._num_made * self._num_left
            rate = f"{self._rows / seconds:.1f} rows/s, {left:.0f} s left"
            print(f"dise: {self._num_left} shards are left, {rate}", file=sys.stderr)
