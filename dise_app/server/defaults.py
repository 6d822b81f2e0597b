"""What the operator of a server sets for all requests."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dise_core import InputError, SamplingParams
from dise_core.catalog import Catalog
from dise_core.records import Fields, Record

INSTEAD: Mapping[str, tuple[str, ...]] = {
    "tokens_per_step": ("steps",),
    "steps": ("tokens_per_step",),
    "scorer": ("scorer_settings", "selector"),
    "unmasking": ("unmasking_settings",),
    "length": ("length_settings",),
    "reviser": ("reviser_settings",),
    "n": ("best_of", "stop_at"),
    "best_of": ("stop_at",),
}
"""Options by name, each with those whose default does not apply to a request that sets it to
something else.
"""

RATES = {"tokens_per_step", "steps"}
"""Of these two a request means the one that it sets, whatever its value."""


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
        its = self.params
        catalog.scorer(its.scorer, its.scorer_settings)
        catalog.unmasking_policy(its.unmasking, its.unmasking_settings)
        if its.selector is not None:
            catalog.selector(its.selector)
        if its.length is not None:
            catalog.length_controller(its.length, its.length_settings)
        if its.reviser is not None:
            catalog.reviser(its.reviser, its.reviser_settings)

    def applied(self, asked: Fields, names: Collection[str]) -> Record:
        """Return what a request asks for, and the defaults of all others among the names."""
        dropped = {
            dependant
            for name, value in asked.items()
            if name in RATES or value != getattr(self.params, name)
            for dependant in INSTEAD.get(name, ())
        }
        return {
            **{
                name: value
                for name, value in self._settings.items()
                if name in names and name not in dropped
            },
            **asked,
        }
