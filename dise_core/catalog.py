"""Strategies, models and engines by name, with the plugin that each came from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

from pydantic import ValidationError

from dise_core.backend import Backend
from dise_core.checks import CheckedSelector
from dise_core.claims import broken, choose
from dise_core.errors import InputError, PluginError, UnknownNameError
from dise_core.interfaces import (
    LengthController,
    Reviser,
    Scorer,
    Selector,
    Strategy,
    UnmaskingPolicy,
)
from dise_core.model import MaskPredictor
from dise_core.params import EngineConfig, input_error
from dise_core.records import Fields
from dise_core.selection import Union

C = TypeVar("C")
S = TypeVar("S", bound=Strategy)

MAX_PARTS = 64
"""Selectors in a union."""

OWN_DISTRIBUTION = "dise"
"""The distribution whose plugins are built in."""


@dataclass(frozen=True, slots=True)
class Entry(Generic[C]):
    """A registered class, with the names of its plugin and of the plugin's distribution; clash:
    what to say of another plugin that claims its name too.
    """

    cls: type[C]
    plugin: str
    distribution: str | None = None
    clash: str | None = None

    @property
    def is_built_in(self) -> bool:
        """Whether it comes from DiSE's own distribution."""
        return self.distribution == OWN_DISTRIBUTION

    def of_its_name(self) -> Self:
        """Return itself for its name. Raises PluginError if another plugin claims the name too."""
        if self.clash is not None:
            raise PluginError(self.clash, self.plugin)
        return self


@dataclass(frozen=True, slots=True)
class Catalog:
    """Strategies, models and engines by name. An unknown name raises UnknownNameError, which lists
    the known ones; no name has a default.

    problems: of the broken plugins, which stop nobody but who asks for a name that may be theirs:
    an unknown one, whose error names them, or one that another plugin has too, a PluginError.
    """

    selectors: Mapping[str, Entry[Selector]]
    scorers: Mapping[str, Entry[Scorer]]
    length_controllers: Mapping[str, Entry[LengthController]]
    unmasking_policies: Mapping[str, Entry[UnmaskingPolicy]]
    mask_predictors: Mapping[str, Entry[MaskPredictor]]
    engines: Mapping[str, Entry[Backend[Any]]]
    revisers: Mapping[str, Entry[Reviser]] = field(default_factory=dict)
    problems: tuple[PluginError, ...] = ()

    def selector(self, text: str) -> Selector:
        """Return the selector of that name; names joined by + give their union. Raises
        UnknownNameError for an unknown name, InputError for one that lacks its number.
        """
        names = text.split("+", MAX_PARTS)
        if len(names) > MAX_PARTS:
            raise InputError(f"a selector may join at most {MAX_PARTS} parts by +", "selector")
        parts = tuple(self._selector(name.strip()) for name in names)
        return parts[0] if len(parts) == 1 else Union(parts=parts)

    def scorer(self, name: str, settings: Fields | None = None) -> Scorer:
        """Return the scorer of that name. Raises InputError for an unknown name or bad settings."""
        return self._build("scorer", name, self.scorers, settings or {})

    def length_controller(self, name: str, settings: Fields | None = None) -> LengthController:
        """Return the length controller of that name. Raises InputError for an unknown name or bad
        settings.
        """
        return self._build("length controller", name, self.length_controllers, settings or {})

    def unmasking_policy(self, name: str, settings: Fields | None = None) -> UnmaskingPolicy:
        """Return the unmasking policy of that name; _ may stand for -, as LLaDA writes it. Raises
        InputError for an unknown name or bad settings.
        """
        return self._build(
            "unmasking policy", name.replace("_", "-"), self.unmasking_policies, settings or {}
        )

    def reviser(self, name: str, settings: Fields | None = None) -> Reviser:
        """Return the reviser of that name. Raises InputError as `scorer` does."""
        return self._build("reviser", name, self.revisers, settings or {})

    def load_model(self, model: str, config: EngineConfig) -> MaskPredictor:
        """Return the model of that name, folder or hub id, loaded by the adapter config.adapter, or
        for None by the adapter that claims it.

        Adapters of other distributions take precedence over the built-in ones. Raises InputError if
        no adapter or several claim it, or for an unknown engine; ModelError if loading fails.
        """
        self.backend(config.engine)
        return self.adapter(model, config.adapter, config.revision).cls.load(model, config)

    def adapter(
        self, model: str, name: str | None = None, revision: str | None = None
    ) -> Entry[MaskPredictor]:
        """Return the adapter of that name, whether or not it claims the model; for None the one
        that does. Raises what `load_model` raises before it loads.
        """
        if name is not None:
            return self._entry("adapter", name, self.mask_predictors)
        return choose(model, self.mask_predictors, revision, self.problems)

    def backend(self, name: str) -> type[Backend[Any]]:
        """Return the backend of that name, a value of the option `engine`. Raises UnknownNameError
        for an unknown one.
        """
        return self._entry("engine", name, self.engines).cls

    def _selector(self, name: str) -> Selector:
        numbered = re.fullmatch(r"(.+?)-0*(\d{1,9})", name)
        settings: Fields = {}
        if name not in self.selectors and numbered and f"{numbered[1]}-K" in self.selectors:
            name, settings = f"{numbered[1]}-K", {"k": int(numbered[2])}
        elif name.endswith("-K") and name in self.selectors:
            raise InputError(
                f"selector {name!r} needs a number, for example {name[:-1]}10", "selector"
            )
        selector = self._build("selector", name, self.selectors, settings)
        is_built_in = self.selectors[name].is_built_in
        return selector if is_built_in else CheckedSelector(inner=selector)

    def _build(self, kind: str, name: str, entries: Mapping[str, Entry[S]], settings: Fields) -> S:
        cls = self._entry(kind, name, entries).cls
        try:
            return cls(**settings)
        except ValidationError as error:
            raise input_error(error, f"{kind} {name!r}", cls.model_fields) from None

    def _entry(self, kind: str, name: str, entries: Mapping[str, Entry[C]]) -> Entry[C]:
        if name not in entries:
            raise UnknownNameError(kind, name, entries, broken(self.problems))
        return entries[name].of_its_name()
