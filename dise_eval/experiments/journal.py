"""An append-only file of finished items, from which a killed run resumes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dise_app.files.linefile import LineFile
from dise_app.files.lines import encoded
from dise_app.files.run_folder import RunFolder
from dise_core.errors import DiseError, InputError
from dise_core.files import refuse_special


class Journal:
    """JSON lines: the run's key, then a record with its id for each finished item."""

    def __init__(
        self, path: Path, key: Mapping[str, object], usual: Mapping[str, object] | None = None
    ) -> None:
        """Open the journal, or create it, and keep other runs out until it is closed.
        usual: see RunFolder. Raises InputError, naming the difference, if it belongs to
        another run, and for a file that dise did not write; the file is then as it was.
        """
        self.path = path
        self.records: dict[str, Mapping[str, object]] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                refuse_special(path)
        except OSError as error:
            raise InputError(f"cannot write --output {path}: {error.strerror}", "output") from error
        self._file = LineFile(path, is_synced=True)
        try:
            self._begin(RunFolder(path, key, usual))
        except BaseException:
            self.close()
            raise

    def add(self, record: Mapping[str, object]) -> None:
        """Append a finished item; it is on disk when this returns. Raises DiseError if
        the disk is full or fails, or for a record that JSON cannot hold.
        """
        try:
            self._file.add(record)
        except InputError as error:
            raise DiseError(f"the record of {record['id']} {error}") from error
        self.records[str(record["id"])] = record

    def close(self) -> None:
        self._file.close()

    def _begin(self, run: RunFolder) -> None:
        is_new = True
        for number, record in self._file.records():
            if number == 1:
                run.refuse_other(record)
                is_new = False
            elif isinstance(name := record.get("id"), str):
                self.records[name] = record
            else:
                raise self._file.foreign(number, "has no id")
        if is_new and not encoded(run.settings).startswith(self._file.torn):
            raise self._file.foreign(1, "is cut short")
        self._file.begin()
        if is_new:
            self._file.add(run.settings)
