"""A file of JSON lines, written by one run at a time in whole lines."""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from io import FileIO
from pathlib import Path

from dise_app.files.lines import BUFFER, encoded, lines_of, parse
from dise_core import DiseError, InputError
from dise_core.records import JsonFields

MAX_OWN_LINE = 2**27
"""The most bytes in a line that dise wrote: an input line and all its answers."""


class LineFile:
    """A file of whole JSON lines that one run at a time may write, left as it is until
    `begin`.
    torn: a last line that was cut short, found by `records`. is_regular: False for a
    special file, such as a pipe, which is written without a lock.
    """

    def __init__(self, path: Path, is_synced: bool = False) -> None:
        """Open or create the file. is_synced: `add` returns once a line is on disk."""
        self.path, self.torn = path, b""
        self._is_synced, self._end, self._joint = is_synced, 0, b""
        self.is_regular = path.is_file() or not path.exists()
        try:
            self._file = path.open("a+b" if self.is_regular else "wb", buffering=0)
        except OSError as error:
            raise InputError(f"cannot write --output {path}: {error.strerror}", "output") from error
        if self.is_regular:
            _lock(self._file, path)

    def records(self) -> Iterator[tuple[int, dict[str, object]]]:
        """Yield the number, from 1, and the record of each line. Raises InputError for a
        line that dise did not write. A torn last line is not yielded; `begin` removes it.
        """
        if not self.is_regular:
            return
        with self.path.open("rb", BUFFER) as file:
            for number, line in enumerate(lines_of(file, MAX_OWN_LINE), start=1):
                try:
                    record = parse(line, MAX_OWN_LINE)
                except InputError as error:
                    is_begun = line[:2] in (b"{", b'{"') and not line.endswith(b"\n")
                    if is_begun and len(line) <= MAX_OWN_LINE:
                        self.torn = line
                        return
                    raise self.foreign(number, str(error)) from error
                yield number, record
                self._end += len(line)
                self._joint = b"" if line.endswith(b"\n") else b"\n"

    def foreign(self, number: int, reason: str) -> InputError:
        return InputError(
            f"cannot resume: dise did not write line {number} of {self.path}, it {reason}. "
            "Use another --output.",
            "output",
        )

    def begin(self) -> None:
        """Remove all but the records that were read. Raises DiseError if that fails."""
        if self.is_regular:
            self._write(self._joint)
            self._file.truncate(self._end)

    def add(self, record: JsonFields) -> None:
        """Append a record. Raises InputError, without a subject, for a record that JSON
        cannot hold, and DiseError if the disk is full or fails: the file then ends with
        the line before.
        """
        self._write(encoded(record))

    def close(self) -> None:
        self._file.close()

    def _write(self, line: bytes) -> None:
        unwritten = memoryview(line)
        try:
            while unwritten:
                unwritten = unwritten[self._file.write(unwritten) or 0 :]
            if self._is_synced:
                os.fsync(self._file.fileno())
        except BrokenPipeError:
            raise
        except OSError as error:
            if self.is_regular:
                with suppress(OSError):
                    self._file.truncate(self._end)
            raise DiseError(
                f"cannot write {self.path}: {error.strerror}; "
                "the lines before are whole, and the run can be resumed"
            ) from error
        self._end += len(line)


def _lock(file: FileIO, path: Path) -> None:
    """Lock a file until it is closed. Raises InputError, and closes it, if it is locked."""
    if sys.platform == "win32":
        return
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise InputError(
            f"another run is writing {path}: wait until it ends, or use another --output", "output"
        ) from None
    except OSError as error:
        print(
            f"dise: cannot lock {path} ({error.strerror}): start no second run that writes it",
            file=sys.stderr,
        )
