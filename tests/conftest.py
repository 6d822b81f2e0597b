"""What holds for all tests, and the fixtures that several folders use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.commands import Dise, commands

if TYPE_CHECKING:
    import openai

    from tests.app.browser import Page
    from tests.app.serving import Serve

pytest.register_assert_rewrite("tests.refusals")
settings.register_profile("shared machine", deadline=None)  # neighbours on the cores are no failure
settings.register_profile("quick", deadline=None, max_examples=10)  # for `make quick`
settings.load_profile("shared machine")


@pytest.fixture(scope="session")
def checkpoint_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that returns a small checkpoint of a kind, which no test changes."""
    from tests.checkpoints import write

    return cache(lambda kind: write(kind, tmp_path_factory.mktemp("checkpoint")))


@pytest.fixture(scope="module")
def served() -> Iterator[Serve]:
    """Return a function that serves a model, with what `serving` takes, until the module's tests
    end, and returns the server's address.
    """
    from tests.app.serving import serving

    with ExitStack() as servers:
        yield lambda *given, **options: servers.enter_context(serving(*given, **options))


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[openai.OpenAI]:
    """Yield OpenAI's client of a module's own server, its fixture `url`."""
    from openai import OpenAI

    with OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """Yield the server's page, in a browser that a module's tests share."""
    from tests.app.browser import browsing

    with browsing(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture
def dise(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Dise:
    """Return a function that runs `dise ARGS...` and returns its exit code and what it printed."""
    return commands(monkeypatch, capsys)
