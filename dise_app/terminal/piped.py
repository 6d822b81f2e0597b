"""Texts from standard input: `-` in place of a text, or a pipe where no text is given."""

import os
import stat
import sys
from collections.abc import Sequence

from dise_core import InputError

STANDARD = "-"

MAX_BYTES = 2**24
"""The most bytes of a text."""


def given_texts(texts: Sequence[str]) -> list[str]:
    """Return the texts with standard input for `-`. Raises InputError if unreadable."""
    if texts.count(STANDARD) > 1:
        raise InputError("- is given twice: standard input can be read only once")
    return [_read() if text == STANDARD else text for text in texts]


def piped_texts() -> list[str]:
    """Return the piped text in a list, or none. Raises as `given_texts` does."""
    return list(filter(None, [_read()])) if _is_piped() else []


def _read() -> str:
    """Return all of standard input without its last line end."""
    content = sys.stdin.buffer.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise InputError(f"standard input is longer than {MAX_BYTES} bytes")
    try:
        return content.decode("utf-8-sig").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        byte = content[error.start]
        raise InputError(
            f"standard input is not UTF-8: byte {byte:#04x} at {error.start}, {error.reason}"
        ) from None


def _is_piped() -> bool:
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, ValueError, OSError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISREG(mode)
