"""OpenMP's threads, configured through environment variables before torch is imported.

OpenMP reads the environment once, when it is loaded. By default a thread that waits for
others spins for up to some ten milliseconds. Beside busy processes it occupies a core
that they need, so each of the hundreds of barriers in a forward pass may take as long as
a scheduler time slice.
"""

import math
import os
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

BRIEF_WAIT = {"GOMP_SPINCOUNT": "2500", "KMP_BLOCKTIME": "1"}
"""Spin briefly, then sleep: loop iterations for GNU's OpenMP, milliseconds for Intel's
and LLVM's.

2,500 iterations take ten to two hundred microseconds, depending on the processor: longer
than most gaps between two parallel regions of a forward pass. docs/performance.md has the
measurements.
"""

WAIT_VARIABLES = ("OMP_WAIT_POLICY", *BRIEF_WAIT)
COUNT_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")

CGROUPS, OWN_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


@cache
def configure_threads() -> bool:
    """Configure how this process's threads wait, and limit their number to its CPU quota,
    through variables of the environment that the user has not set, before torch is
    imported. Returns whether the user has left the number of threads open.
    """
    is_open = os.environ.keys().isdisjoint(COUNT_VARIABLES)
    if "torch" not in sys.modules:
        os.environ.update(thread_settings(os.environ, num_cores(), cpu_quota()))
    return is_open


@cache
def choose_threads() -> bool:
    """Return whether we choose the threads: left open, and torch not imported."""
    return "torch" not in sys.modules and configure_threads()


def thread_settings(
    environment: Mapping[str, str], cores: int, quota: float | None
) -> dict[str, str]:
    """Return the variables to add to an environment. quota: of the CPU in cores, if
    limited.

    What the user has set stays. A number of threads is set only for a quota, which OpenMP
    does not know of: a thread that is out of CPU time holds up all others at a barrier.
    """
    settings = dict(BRIEF_WAIT) if environment.keys().isdisjoint(WAIT_VARIABLES) else {}
    is_open = environment.keys().isdisjoint(COUNT_VARIABLES)
    if is_open and quota is not None and math.ceil(quota) < cores:
        settings["OMP_NUM_THREADS"] = str(max(1, math.ceil(quota)))
    return settings


def num_cores() -> int:
    """Return the number of logical cores on which this process may run."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def cpu_quota(root: Path = CGROUPS, listing: Path = OWN_CGROUPS) -> float | None:
    """Return the CPU quota in cores, None for no limit. listing: of its groups."""
    if not listing.exists():
        return None
    limits = (_limit(folder) for folder in _groups(root, listing))
    return min((limit for limit in limits if limit is not None), default=None)


def _groups(root: Path, listing: Path) -> Iterator[Path]:
    """Yield the folders that may limit the CPU time. The listed path may be the host's;
    then only the topmost folder exists, and that is the container's own.
    """
    for line in listing.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        parts = path.strip("/").split("/")
        for depth in range(len(parts), -1, -1):
            yield root.joinpath(controllers, *parts[:depth])


def _limit(folder: Path) -> float | None:
    """Return a group's limit in cores. Version 1 has two files, and -1 for no limit."""
    if (file := folder / "cpu.max").is_file():
        quota, period = file.read_text().split()
    elif (alone := folder / "cpu.cfs_quota_us").is_file():
        quota, period = alone.read_text().strip(), (folder / "cpu.cfs_period_us").read_text()
    else:
        return None
    return None if quota in ("max", "-1") else int(quota) / int(period)
