"""How much main memory is free, within the limits of control groups; and giving it back."""

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("sys/fs/cgroup")

FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
"""The limit and the use of a control group, in version 2 and in version 1."""

RECLAIMABLE = ("active_file", "inactive_file")
"""What a group uses for files that the system may drop, such as a mapped checkpoint."""


def free_main_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes of main memory that this process may still take, on Linux: what
    the machine has available, or less where a control group of this process, or one above
    it, allows less. None where that is unknown. root: of the folders proc and sys.
    """
    info = root / "proc/meminfo"
    if not info.is_file():
        return None
    fields = dict(line.split(":", 1) for line in info.read_text().splitlines() if ":" in line)
    free = [int(fields["MemAvailable"].split()[0]) * 1024]
    free += [size for size in map(_left, _groups(root)) if size is not None]
    return max(0, min(free))


def _groups(root: Path) -> Iterator[Path]:
    """Yield the folders of the control groups, of either version, that count this
    process's memory. A container may see its own as the uppermost, whatever its path is
    outside.
    """
    listing = root / "proc/self/cgroup"
    for line in listing.read_text().splitlines() if listing.is_file() else ["0::/"]:
        _, controllers, path = line.split(":", 2)
        names = ("", "unified") if controllers == "" else ("memory",)
        if controllers and "memory" not in controllers.split(","):
            continue
        for top in (root / CGROUPS / name for name in names):
            group = top / path.lstrip("/")
            yield from (part for part in (group, *group.parents) if part.is_relative_to(top))


def _left(group: Path) -> int | None:
    """Return the bytes that a control group leaves; None for one without a limit."""
    for limit, used in FILES:
        try:
            maximum, current = ((group / name).read_text().strip() for name in (limit, used))
        except OSError:
            continue
        return None if maximum == "max" else int(maximum) - int(current) + _reclaimable(group)
    return None


def _reclaimable(group: Path) -> int:
    """Return the bytes of files, in version 1 those of the groups below too."""
    statistics = group / "memory.stat"
    lines = statistics.read_text().splitlines() if statistics.is_file() else []
    counts = {name: int(count) for name, count in (line.split() for line in lines)}
    return sum(counts.get(f"total_{name}", counts.get(name, 0)) for name in RECLAIMABLE)


def give_back_freed_memory() -> None:
    """Return freed memory to the system; without glibc do nothing.

    Weights that were joined or packed leave holes between those that stay, which glibc
    would keep: after all layers, half of the model's size.
    """
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "malloc_trim"):
        library.malloc_trim(0)
