"""Ray starts workers, replaces dead ones, and sends them shard numbers. The shards, not
Ray, guarantee that each row is written exactly once.
"""

from __future__ import annotations

import math
import os
import sys
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Generic

from dise_app.files.runner import P
from dise_app.terminal import interrupts
from dise_core import LLM, DiseError, InputError
from dise_core.errors import error_line

if TYPE_CHECKING:
    import ray
    from ray.actor import ActorHandle

    from dise_cluster.folder import Manifest
    from dise_cluster.shard import ShardJob

ATTEMPTS = 3
"""How often a shard is tried before it is given up."""


class ShardWorker(Generic[P]):
    """Makes shards, one at a time, with a model that it loads for the first."""

    def __init__(self, job: ShardJob[P]) -> None:
        self._job = job
        self._loaded: tuple[LLM, str] | None = None

    def make(self, number: int) -> Manifest | None:
        """Return what ShardJob.make returns; for 0 only load the model."""
        try:
            if self._loaded is None:
                llm = self._job.work.load()
                self._loaded = llm, self._job.claim(llm)
            return self._job.make(*self._loaded, number) if number else None
        except InputError as error:
            raise InputError(str(error)) from None  # not every subclass can be pickled
        except DiseError as error:
            raise DiseError(error_line(error)) from None


def made_on_ray(
    job: ShardJob[P], numbers: Sequence[int], address: str, num_workers: int, **resources: float
) -> Iterator[Manifest]:
    """Yield shards as workers finish them. One that fails is tried again, then named and
    left out.
    Raises InputError as a worker does, and DiseError after too many failures in a row.
    resources: num_cpus and num_gpus of each worker, which gets a shard once it has its
    model.
    """
    import ray

    size, waiting = min(num_workers, len(numbers)), deque(numbers)
    _join(address, size, **resources)
    new_worker = ray.remote(**resources)(ShardWorker).remote
    running: dict[ray.ObjectRef, tuple[ActorHandle, int]] = {}
    for worker in [new_worker(job) for _ in range(size)]:
        running[worker.make.remote(0)] = worker, 0
    tries, num_in_a_row = Counter[int](), 0
    while waiting or any(number for _, number in running.values()):
        [ended], _ = ray.wait(list(running))
        worker, number = running.pop(ended)
        manifest, problem, is_dead = _outcome(ended)
        if manifest is not None:
            num_in_a_row = 0
            yield manifest
        if problem is not None:
            num_in_a_row += 1
            tries[number] += 1
            if num_in_a_row > ATTEMPTS * size:
                raise DiseError(f"{problem}; --resume goes on where this ended")
            if tries[number] < ATTEMPTS:
                waiting.extend([number] if number else [])
            elif number:
                print(f"dise: shard {number} is given up: {problem}", file=sys.stderr)
        if waiting:
            worker, number = (new_worker(job), 0) if is_dead else (worker, waiting.popleft())
            running[worker.make.remote(number)] = worker, number


def _outcome(ended: ray.ObjectRef) -> tuple[Manifest | None, str | None, bool]:
    """Return a shard, or why it failed, and whether its worker is dead. Raises an error
    that would recur.
    """
    import ray
    from ray.exceptions import RayActorError, RayTaskError

    try:
        return ray.get(ended), None, False
    except RayActorError as error:
        return None, error_line(error).partition(". ")[0], True
    except RayTaskError as error:
        if isinstance(error.cause, InputError):
            raise error.cause from error
        is_ours = isinstance(error.cause, DiseError)
        return None, str(error.cause) if is_ours else error_line(error.cause), False


def _join(address: str, size: int, num_cpus: float, num_gpus: float) -> None:
    """Connect to Ray, or start it for "local". Warn if it lacks a worker's resources."""
    import ray

    interrupts.in_order()
    if not ray.is_initialized():
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        local = {"num_cpus": math.ceil(size * num_cpus), "include_dashboard": False}
        options = local if address == "local" else {}
        ray.init(address=address, log_to_driver=False, logging_level="error", **options)
    has = ray.cluster_resources()
    if has.get("GPU", 0) < num_gpus or has.get("CPU", 0) < num_cpus:
        print(f"dise: a worker waits for what Ray lacks; it has {has}", file=sys.stderr)
