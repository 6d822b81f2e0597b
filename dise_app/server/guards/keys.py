"""The keys that clients must send: from the environment, and from a file."""

from __future__ import annotations

import os
from pathlib import Path

from dise_core import InputError


def api_keys(file: Path | None) -> tuple[str, ...]:
    """Return the keys of the environment and of the file; without either none is needed. Raises
    InputError for a file that cannot be read, or that holds no key.
    """
    key = os.environ.get("DISE_API_KEY", "").strip()
    return (*filter(None, [key]), *(() if file is None else _in_file(file)))


def _in_file(file: Path) -> tuple[str, ...]:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InputError(
            f"cannot read {file}: {error.strerror or error}", "api_key_file"
        ) from error
    lines = content.decode("utf-8", "surrogateescape").splitlines()
    if not (keys := tuple(line.strip() for line in lines if line.strip())):
        raise InputError(f"{file} holds no key: write one on a line", "api_key_file")
    return keys
