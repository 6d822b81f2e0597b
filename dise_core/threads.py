"""OpenMP's threads, configured through environment variables before torch is imported.

OpenMP reads the environment once, when it is loaded. By default a thread that waits for others
spins for up to some ten milliseconds. Beside busy processes it occupies a core that they need, so
each of the hundreds of barriers in a forward pass may take as long as a scheduler time slice.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

BRIEF_WAIT = {"GOMP_SPINCOUNT": "2500", "KMP_BLOCKTIME": "1"}
"""Spin briefly, then sleep: loop iterations for GNU's OpenMP, milliseconds for Intel's and LLVM's.

2,500 iterations take ten to two hundred microseconds, depending on the processor: longer than most
gaps between two parallel regions of a forward pass. docs/performance.md has the measurements.
"""

WAIT_VARIABLES = ("OMP_WAIT_POLICY", *BRIEF_WAIT)
COUNT_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")

CGROUPS, OWN_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


@cache
def configure_threads() -> bool:
    """Configure how this process's threads wait, and limit their number to its CPU quota. Called as
    dise_core is imported.

    Sets environment variables, which child processes inherit: they share the same cores. Variables
    that the user has set stay, and once torch is imported nothing is set. Only the first call has
    an effect. Returns whether the user has left their number open.
    """
    is_open = not any(name in os.environ for name in COUNT_VARIABLES)
    if "torch" not in sys.modules:
        os.environ.update(thread_settings(os.environ, num_cores(), cpu_quota()))
    return is_open


@cache
def choose_threads() -> bool:
    """Return whether we may choose the number of threads: the user has left it open, and torch was
    not yet imported at the first call.
    """
    return "torch" not in sys.modules and configure_threads()


def thread_settings(
    environment: Mapping[str, str], cores: int, quota: float | None
) -> dict[str, str]:
    """Return the variables to add to the environment of a process with that many cores and a CPU
    quota of that many cores' time, None for no limit.

    A variable that the user has set rules out all that decide the same. The number of threads is
    set only if the quota, which OpenMP does not know of, is below the number of cores: a thread
    that is out of CPU time holds up all others at a barrier.
    """
    is_wait_chosen = any(name in environment for name in WAIT_VARIABLES)
    is_count_chosen = any(name in environment for name in COUNT_VARIABLES)
    settings = {} if is_wait_chosen else dict(BRIEF_WAIT)
    if quota is not None and math.ceil(quota) < cores and not is_count_chosen:
        settings["OMP_NUM_THREADS"] = str(max(1, math.ceil(quota)))
    return settings


def num_cores() -> int:
    """Return the number of logical cores on which this process may run."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def cpu_quota(root: Path = CGROUPS, own: Path = OWN_CGROUPS) -> float | None:
    """Return the CPU quota of this process's control groups in cores, None for no limit.

    root: where control groups are mounted, version 1 or 2. own: the file that lists the groups of
    this process.
    """
    if not own.exists():
        return None
    limits = (_limit(folder) for folder in _groups(root, own))
    return min((limit for limit in limits if limit is not None), default=None)


def _groups(root: Path, own: Path) -> Iterator[Path]:
    """Yield the folders of the process's groups that may limit its CPU time, and their parents.

    Inside a container the listed path may be the host's; then only the topmost folder exists, and
    that is the container's own.
    """
    for line in own.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        parts = path.strip("/").split("/")
        for depth in range(len(parts), -1, -1):
            yield root.joinpath(controllers, *parts[:depth])


def _limit(folder: Path) -> float | None:
    """Return a group's own limit in cores, None for no limit.

    Version 2 has "QUOTA PERIOD" or "max PERIOD" in one file; version 1 uses -1 for no limit.
    """
    if (both := folder / "cpu.max").is_file():
        quota, period = both.read_text().split()
    elif (alone := folder / "cpu.cfs_quota_us").is_file():
        quota, period = alone.read_text().strip(), (folder / "cpu.cfs_period_us").read_text()
    else:
        return None
    return None if quota in ("max", "-1") else int(quota) / int(period)
