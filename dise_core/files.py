"""Files that strangers may have written."""

import errno
import stat
from io import BufferedReader
from pathlib import Path


def refuse_special(path: Path) -> None:
    """Raise OSError for a pipe, a device or a socket, any of which may never answer, and for
    a path where there is nothing.
    """
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "It is a pipe, a device or a socket, and no file", str(path))


def opened_file(path: Path) -> BufferedReader:
    """Return a file, open to be read; links are followed. Raises OSError for anything else."""
    refuse_special(path)
    return path.open("rb")
