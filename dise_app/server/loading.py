"""A model that is loaded while its server already listens."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

from dise_app.server.run import GracefulServer
from dise_app.server.service import Service
from dise_core import AsyncLLM


class Loading:
    """Loads a server's model in a thread of its own, once; the server ends if that fails."""

    def __init__(
        self,
        load: Callable[[], AsyncLLM],
        service: Service,
        server: GracefulServer,
        announce: Callable[[], None],
    ) -> None:
        """announce: called as soon as requests are answered."""
        self._load, self._announce = load, announce
        self._service, self._server = service, server
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="dise-loading", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._service.begin(self._load())
            self._announce()
        except BaseException as error:
            self._error = error
            self._server.should_exit = True

    def end(self) -> None:
        """Raise why the model could not be loaded; give up what is still being loaded."""
        if self._error is not None:
            raise self._error
        if self._thread.is_alive():
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self._server.exit_code)
