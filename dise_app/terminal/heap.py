"""The command's memory: freed memory is kept, imports and models are no garbage."""

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

KEEP = {
    -1: 2**30,  # M_TRIM_THRESHOLD: give nothing back below 1 GiB
    -2: 2**26,  # M_TOP_PAD: grow by 64 MiB
    -3: 2**25,  # M_MMAP_THRESHOLD: buffers up to 32 MiB, the most it takes, come from the heap
    -8: 1,  # M_ARENA_MAX: the engine's thread uses the same heap
}
"""Parameters of glibc's mallopt, by their numbers in malloc.h."""


def keep_freed_memory() -> None:
    """Tell glibc to keep freed memory. By default it returns large buffers after each
    layer, and new pages then cost page faults: up to half the time of a small model's
    pass on a virtual machine.
    """
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        for parameter, value in KEEP.items():
            library.mallopt(parameter, value)


@contextmanager
def kept() -> Iterator[None]:
    """Spare all that exists at the end from garbage collection, which takes long."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
