"""Runs that go on where they ended: their settings stand beside their rows, or before them."""

import json
import os
from pathlib import Path

from dise_app.files.texts import json_file, write_json
from dise_core import InputError
from dise_core.errors import shown
from dise_core.files import opened_file
from dise_core.records import ABSENT, JsonFields, Record, filled, first_difference

MADE_WITH = "made_with"
"""The one key in the file of an output's settings."""


class RunFolder:
    """The settings of a run, as JSON, and the place that holds its rows, where no other run
    goes on. Rows are lines of one file (see LineFile), or files that have their names once
    they are whole (see `replacing`).

    usual: the options' defaults, which hold where a note of the settings, as of an older
    version, does not say.
    """

    def __init__(self, path: Path, settings: JsonFields, usual: JsonFields | None = None) -> None:
        self.path, self._usual = path, usual or {}
        self.settings: Record = json.loads(json.dumps(settings))

    def is_of(self, note: JsonFields) -> bool:
        """Return whether a note of settings is of this run."""
        return filled(note, self._usual) == filled(self.settings, self._usual)

    def refuse_other(self, note: JsonFields) -> None:
        """Raise InputError, naming the first difference, if a note is of another run."""
        if self.is_of(note):
            return
        pair = filled(note, self._usual), filled(self.settings, self._usual)
        name, theirs, ours = first_difference("", *pair)
        if ours is ABSENT:
            raise InputError(
                f"{self.path} holds a run with {name}={shown(theirs)}, and this run has no such "
                "setting: another version of dise may have written it. Use another --output, or "
                "that version.",
                "output",
            )
        if theirs is ABSENT:
            raise InputError(
                f"{self.path} holds a run that does not say its {name}, and this run has "
                f"{name}={shown(ours)}. Use another --output.",
                "output",
            )
        raise InputError(
            f"{self.path} holds a run with {name}={shown(theirs)}, and this run has "
            f"{name}={shown(ours)}. Use another --output, or the settings of that run.",
            "output",
        )

    def claim(self) -> None:
        """Note the settings in the file `path`, unless this run goes on there. Raises
        InputError if another one does.
        """
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self.path, self.settings)
        self.refuse_other(note_in(self.path))


def note_in(path: Path) -> Record:
    """Return the settings that `RunFolder.claim` noted. Raises InputError for other files."""
    note = json_file(path)
    if not isinstance(note, dict) or "command" not in note:
        raise InputError(f"{path} was not written by dise: use another --output", "output")
    return note


def settings_path(output: Path) -> Path:
    """Return a path beside the file itself, whatever name it was given by."""
    return Path(f"{os.path.realpath(output)}.settings.json")


def made_with(output: Path) -> Record | None:
    """Return the settings of an output; None if dise noted none."""
    try:
        with opened_file(settings_path(output)) as file:
            content = json.loads(file.read())
    except (OSError, ValueError):
        return None
    settings = content.get(MADE_WITH) if isinstance(content, dict) else None
    return settings if isinstance(settings, dict) else None
