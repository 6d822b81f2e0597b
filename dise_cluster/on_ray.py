"""Ray Data gives workers the numbers of shards, and replaces dead ones. The shards, not Ray,
guarantee that each row is written exactly once.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Generic

from dise_app.files.runner import P
from dise_app.terminal import interrupts
from dise_cluster.shard import Shard, ShardJob
from dise_core import LLM, DiseError, InputError
from dise_core.errors import error_line

if TYPE_CHECKING:
    from collections.abc import Mapping

ATTEMPTS = 3
"""How often a shard whose worker dies is tried before it is given up."""


class ShardWorker(Generic[P]):
    """Makes shards, one at a time, with a model that it opens for the first."""

    def __init__(self, job: ShardJob[P]) -> None:
        self._job = job
        self._begun: tuple[LLM, str] | None = None

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[str]]:
        """Return the shard of the batch's one number, or why it failed, as JSON."""
        [number] = batch["shard"].tolist()
        try:
            self._begun = self._begun or self._job.begin()
            report = asdict(self._job.make(*self._begun, number))
        except DiseError as error:
            report = {"error": error_line(error), "is_input": isinstance(error, InputError)}
        return {"report": [json.dumps(report)]}


def made_on_ray(
    job: ShardJob[P],
    numbers: Sequence[int],
    address: str,
    num_workers: int,
    advance: Callable[[float], None],
) -> Iterator[Shard]:
    """Yield shards as workers finish them. Those that fail are named and left out. Raises
    InputError as a worker does, and DiseError after too many failures in a row.
    """
    import ray.data

    size, num_in_a_row, rest = min(num_workers, len(numbers)), 0, set(numbers)
    _join(address, size)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars, context.max_errored_blocks = False, -1
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    rows = [{"shard": number} for number in numbers]
    reports = ray.data.from_items(rows, override_num_blocks=len(rows)).map_batches(
        ShardWorker,
        fn_constructor_args=(job,),
        compute=ray.data.ActorPoolStrategy(size=size, max_tasks_in_flight_per_actor=1),
        batch_size=1,
        num_gpus=1 if ray.cluster_resources().get("GPU") else 0,
        max_task_retries=ATTEMPTS - 1,  # Ray Data's own number is unbounded
    )
    for row in reports.iter_rows():
        report = json.loads(row["report"])
        advance(1)
        if "error" not in report:
            num_in_a_row = 0
            rest.discard(report["index"])
            yield Shard(**report)
            continue
        if report["is_input"]:
            raise InputError(report["error"])
        num_in_a_row += 1
        print(f"dise: a shard failed: {report['error']}", file=sys.stderr)
        if num_in_a_row > ATTEMPTS * size:
            raise DiseError(f"{report['error']}; --resume goes on where this ended")
    for number in sorted(rest):
        print(f"dise: shard {number} is given up; --resume tries it again", file=sys.stderr)


def _join(address: str, size: int) -> None:
    """Connect to Ray, or start it for "local"."""
    import ray

    interrupts.in_order()
    if not ray.is_initialized():
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        local = {"num_cpus": size, "include_dashboard": False}
        options = local if address == "local" else {}
        ray.init(address=address, log_to_driver=False, logging_level="error", **options)
