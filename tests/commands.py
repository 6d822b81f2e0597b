"""The command, run in this process."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from dise_app.cli.main import run as run_command


@dataclass(frozen=True)
class Run:
    code: int
    out: str
    err: str


Dise = Callable[..., Run]


def commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Dise:
    """Return a function that runs `dise ARGS...` and returns its exit code and what it printed."""

    def run(*args: object, columns: int = 200) -> Run:
        monkeypatch.setattr(sys, "argv", ["dise", *map(str, args)])
        monkeypatch.setenv("COLUMNS", str(columns))
        capsys.readouterr()
        try:
            run_command()
            code = 0
        except SystemExit as leaving:
            code = int(leaving.code or 0)
        finally:
            # The command leaves what it loaded out of garbage collection, and keeps its handler of
            # Ctrl-C; other tests do not.
            gc.unfreeze()
            signal.signal(signal.SIGINT, signal.default_int_handler)
        captured = capsys.readouterr()
        return Run(code, captured.out, captured.err)

    return run
