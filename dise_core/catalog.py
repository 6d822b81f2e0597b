"""Everything that can be called by name: strategies and models, and the plugin each came from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from dise_core.backend import Backend
from dise_core.claims import choose
from dise_core.errors import InputError, UnknownNameError
from dise_core.interfaces import LengthController, Scorer, Selector, Strategy, UnmaskingPolicy
from dise_core.model import MaskPredictor
from dise_core.params import EngineConfig, input_error
from dise_core.records import Fields
from dise_core.selection import Union

C = TypeVar("C")
S = TypeVar("S", bound=Strategy)

OWN_DISTRIBUTION = "dise"
"""The distribution whose plugins are built in."""


@dataclass(frozen=True, slots=True)
class Entry(Generic[C]):
    """A registered class, the name of the plugin that brought it, and that of the plugin's
    distribution.
    """

    cls: type[C]
    plugin: str
    distribution: str | None = None

    @property
    def is_built_in(self) -> bool:
        """Whether DiSE's own distribution brought it."""
        return self.distribution == OWN_DISTRIBUTION


@dataclass(frozen=True, slots=True)
class Catalog:
    """Strategies and models by name. An unknown name is an error that lists the known ones, never a
    default.
    """

    selectors: Mapping[str, Entry[Selector]]
    scorers: Mapping[str, Entry[Scorer]]
    length_controllers: Mapping[str, Entry[LengthController]]
    unmasking_policies: Mapping[str, Entry[UnmaskingPolicy]]
    mask_predictors: Mapping[str, Entry[MaskPredictor]]
    engines: Mapping[str, Entry[Backend[Any]]]

    def selector(self, text: str) -> Selector:
        """Return the selector that the text names: one name, or a union of several joined by +.
        Raises InputError for an unknown one, or one that lacks its number.
        """
        parts = tuple(self._selector(name.strip()) for name in text.split("+"))
        return parts[0] if len(parts) == 1 else Union(parts=parts)

    def scorer(self, name: str, settings: Fields | None = None) -> Scorer:
        """Return the scorer of that name with its settings. Raises InputError for either."""
        return _build("scorer", name, self.scorers, settings or {})

    def length_controller(self, name: str, settings: Fields | None = None) -> LengthController:
        """Return the length controller of that name with its settings. Raises InputError for
        either.
        """
        return _build("length controller", name, self.length_controllers, settings or {})

    def unmasking_policy(self, name: str, settings: Fields | None = None) -> UnmaskingPolicy:
        """Return the unmasking policy of that name with its settings; _ may stand for -, as LLaDA
        writes it. Raises InputError for either.
        """
        return _build(
            "unmasking policy", name.replace("_", "-"), self.unmasking_policies, settings or {}
        )

    def load_model(self, model: str, config: EngineConfig) -> MaskPredictor:
        """Load a model by its name, folder or hub id, with the adapter that config.adapter names,
        else that which claims it.

        Adapters of other distributions come before the built-in ones. Raises InputError if none or
        several claim it, or if there is no such engine, ModelError if it cannot be loaded.
        """
        self.backend(config.engine)
        entry = choose(model, config.adapter, self.mask_predictors, config.revision)
        return entry.cls.load(model, config)

    def backend(self, name: str) -> type[Backend[Any]]:
        """Return the backend that the option `engine` names. Raises UnknownNameError, which lists
        the known ones.
        """
        if name not in self.engines:
            raise UnknownNameError("engine", name, self.engines)
        return self.engines[name].cls

    def _selector(self, name: str) -> Selector:
        numbered = re.fullmatch(r"(.+)-(\d+)", name)
        if name not in self.selectors and numbered and f"{numbered[1]}-K" in self.selectors:
            return _build("selector", f"{numbered[1]}-K", self.selectors, {"k": int(numbered[2])})
        if name.endswith("-K") and name in self.selectors:
            raise InputError(
                f"selector {name!r} needs a number, for example {name[:-1]}10", "selector"
            )
        return _build("selector", name, self.selectors, {})


def _build(kind: str, name: str, entries: Mapping[str, Entry[S]], settings: Fields) -> S:
    if name not in entries:
        raise UnknownNameError(kind, name, entries)
    try:
        return entries[name].cls(**settings)
    except ValidationError as error:
        raise input_error(error, f"{kind} {name!r}") from None
