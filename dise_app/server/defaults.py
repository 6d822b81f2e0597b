"""What the operator of a server sets for all requests."""

from __future__ import annotations

from collections.abc import Collection

from dise_core import InputError, SamplingParams
from dise_core.params.marks import replaced
from dise_core.plugins.catalog import Catalog
from dise_core.plugins.kinds import kinds_named_by
from dise_core.records import Fields, Record


class Defaults:
    """Options of SamplingParams, which apply where a request does not set them."""

    def __init__(self, settings: Fields) -> None:
        """Raises InputError for what no request may ask for, and for logprobs, which each request
        asks for in the terms of its own API.
        """
        if "logprobs" in settings:
            raise InputError("there is no default for logprobs: each request sets it", "logprobs")
        self.params = SamplingParams(**settings)
        self._settings: Record = self.params.model_dump(exclude_unset=True)

    def check(self, catalog: Catalog) -> None:
        """Raise InputError for the name of a strategy that is not installed, or its settings."""
        for kind in kinds_named_by(SamplingParams):
            catalog.chosen(kind, self.params)

    def applied(self, asked: Fields, names: Collection[str]) -> Record:
        """Return what a request asks for, and the defaults of all others among the names."""
        dropped = {
            other
            for name, value in asked.items()
            for other in replaced(SamplingParams, name, value != getattr(self.params, name))
        }
        wanted = set(names) - dropped
        defaults = {name: value for name, value in self._settings.items() if name in wanted}
        return {**defaults, **asked}
