"""The command, run in this process on the embedded model; the page, in a browser."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from dise_app.cli.main import main

if TYPE_CHECKING:
    from tests.app.browser import Page


@dataclass(frozen=True)
class Run:
    code: int
    out: str
    err: str


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """Yield the server's page, in a browser that a module's tests share."""
    from tests.app.browser import browsing

    with browsing(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture
def dise(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    """Return a function that runs `dise ARGS...` and returns its exit code and what it printed."""

    def run(*args: object, columns: int = 200) -> Run:
        monkeypatch.setattr(sys, "argv", ["dise", *map(str, args)])
        monkeypatch.setenv("COLUMNS", str(columns))
        capsys.readouterr()
        try:
            main()
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
