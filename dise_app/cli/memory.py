"""The command's memory: what is freed is kept for the next pass, and what is loaded is not searched
for garbage.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import sys
from typing import TypeVar

T = TypeVar("T")

KEEP = {
    -1: 2**30,  # M_TRIM_THRESHOLD: give nothing back below 1 GiB
    -2: 2**26,  # M_TOP_PAD: grow by 64 MiB
    -3: 2**25,  # M_MMAP_THRESHOLD: buffers up to 32 MiB, the most it takes, come from the heap
    -8: 1,  # M_ARENA_MAX: the engine's thread uses the same heap
}
"""Parameters of glibc's mallopt, by their numbers in malloc.h."""


def keep_freed_memory() -> None:
    """Tell glibc to keep freed memory; elsewhere do nothing.

    By default it hands buffers of more than some hundred kilobytes back to the system after each
    layer, and every new page then costs a fault: on a virtual machine that is up to half the time
    of a small model's pass.
    """
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        for parameter, value in KEEP.items():
            library.mallopt(parameter, value)


def settled(model: T) -> T:
    """Return a loaded model, and leave all that exists by now out of garbage collection.

    The libraries' and the model's objects never become garbage, and a full collection passes over
    all of them: a tenth of a second, again and again, while requests come and go. The interpreter's
    last collection sees them again: some libraries count, when it ends, which of their objects were
    never collected.
    """
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)
    return model
