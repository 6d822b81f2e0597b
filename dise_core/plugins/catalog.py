"""Strategies, models and engines by name, with the plugin that each came from."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar, cast

from pydantic import BaseModel, ValidationError, ValidationInfo

from dise_core.errors import DiseError, InputError, PluginError, UnknownNameError, did_you_mean
from dise_core.interrupts import is_leaving
from dise_core.models.backend import Backend
from dise_core.models.named import ModelName
from dise_core.models.predictor import MaskPredictor
from dise_core.params.base import input_error
from dise_core.params.engine import EngineConfig
from dise_core.params.marks import Mark, marked
from dise_core.plugins import kinds
from dise_core.plugins.claims import broken, choose
from dise_core.plugins.entry import Entry, named
from dise_core.scoring.contract import CheckedSelector, is_ours
from dise_core.scoring.scorer import Scorer, Selector, Union
from dise_core.scoring.strategy import Strategy
from dise_core.struck import struck
from dise_core.writing.length import LengthController
from dise_core.writing.policy import UnmaskingPolicy
from dise_core.writing.reviser import Reviser

C = TypeVar("C")
S = TypeVar("S", bound=Strategy)

MAX_PARTS = 64
"""Selectors in a union."""

Entries = Mapping[str, Entry[Any]]

GivenSettings = Mapping[str, object] | None
"""Settings of a strategy by name, not yet checked; None for the defaults."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """What is installed, by name. An unknown name raises UnknownNameError, which lists
    the known ones; no name has a default.

    entries: of each kind, by its plural, which is an attribute too, as in
    `catalog.scorers`; a kind that is left out has none. Each of a third party's has the
    name PLUGIN:NAME, too. problems: of the broken plugins, which an unknown name tells,
    and of those whose names others had.
    """

    entries: Mapping[str, Entries]
    problems: tuple[PluginError, ...] = ()

    def __post_init__(self) -> None:
        for plural in self.entries.keys() - kinds.BY_PLURAL.keys():
            raise UnknownNameError("kind", plural, kinds.BY_PLURAL)

    def __getattr__(self, plural: str) -> Entries:
        if plural not in kinds.BY_PLURAL:
            raise AttributeError(f"a catalog has no {plural!r}")
        return self.entries.get(plural, {})

    def having(self, **entries: Entries) -> Self:
        """Return the catalog with these entries, by the kinds' plurals. Raises
        UnknownNameError for another.
        """
        return replace(self, entries={**self.entries, **entries})

    def entry(self, kind: kinds.Kind[C], name: str, title: str | None = None) -> Entry[Any]:
        """Return the entry of that name, or PLUGIN:NAME. Raises UnknownNameError, and
        InputError for one that was taken out.
        """
        entries: Entries = self.entries.get(kind.plural, {})
        if (entry := named(entries, name)) is None:
            if sentence := struck(kind.title, name):
                raise InputError(sentence, kind.option)
            detail, near = broken(self.problems), _numbered(entries, name)
            called, option = (title or kind.title), (title or kind.option)
            raise UnknownNameError(called, name, entries, detail, near, option)
        return entry

    def has(self, kind: kinds.Kind[C], name: str) -> bool:
        """Return whether there is an entry of that name, or PLUGIN:NAME."""
        return named(self.entries.get(kind.plural, {}), name) is not None

    def selector(self, text: str, settings: GivenSettings = None) -> Selector:
        """Return the selector of that name; names joined by + give their union, whose
        settings are those of its parts by their names. Raises UnknownNameError for an
        unknown name, InputError for one that lacks its number, or a wrong setting.
        """
        names = text.split("+", MAX_PARTS)
        if len(names) > MAX_PARTS:
            raise InputError(f"a selector may join at most {MAX_PARTS} parts by +", "selector")
        names = [name.strip() for name in names]
        if len(names) == 1:
            return self._selector(names[0], settings or {})
        by_part: dict[str, Mapping[str, object]] = {name: {} for name in names}
        for part, its_settings in (settings or {}).items():
            if part not in names or not isinstance(its_settings, Mapping):
                raise InputError(
                    "the settings of a union of selectors are objects, by its parts' "
                    f"names, and not {its_settings!r:.80} for {part!r:.80}"
                    f"{did_you_mean(part, names) or '.'} Its parts: {', '.join(names)}",
                    "selector_settings",
                )
            by_part[part] = its_settings
        return Union(parts=tuple(self._selector(name, by_part[name]) for name in names))

    def scorer(self, name: str, settings: GivenSettings = None) -> Scorer:
        """Return the scorer of that name. Raises InputError for a bad name or setting."""
        return self._build(kinds.SCORER, name, settings)

    def length_controller(self, name: str, settings: GivenSettings = None) -> LengthController:
        """Return the length controller of that name, with these settings."""
        return self._build(kinds.LENGTH, name, settings)

    def unmasking_policy(self, name: str, settings: GivenSettings = None) -> UnmaskingPolicy:
        """Return the unmasking policy of that name; _ may stand for -."""
        return self._build(kinds.UNMASKING, name, settings)

    def reviser(self, name: str, settings: GivenSettings = None) -> Reviser:
        """Return the reviser of that name, with these settings."""
        return self._build(kinds.REVISER, name, settings)

    def chosen(self, kind: kinds.Kind[S], params: BaseModel) -> S | None:
        """Return the strategy of that kind that the params name, or hold as an object, if
        any. Raises InputError for a bad name or setting, and for settings of an object.
        """
        name = getattr(params, kind.option)
        if isinstance(name, Strategy):
            return _as_it_is(kind, name, params)
        if name is None:
            return None
        settings: GivenSettings = getattr(params, f"{kind.option}_settings")
        if kind.base is Selector:
            return cast("S", self.selector(name, settings))
        return self._build(kind, name, settings)

    def required(self, kind: kinds.Kind[S], params: BaseModel) -> S:
        """Return the strategy of that kind that the params must name."""
        strategy = self.chosen(kind, params)
        if strategy is None:
            known = self.entries.get(kind.plural, {})
            raise UnknownNameError(kind.title, "", known, parameter=kind.option)
        return strategy

    def check(self, params: BaseModel) -> None:
        """Raise InputError for an unknown strategy or wrong settings."""
        for kind in kinds.kinds_named_by(type(params)):
            self.chosen(kind, params)

    def option_names(self) -> set[str]:
        """Return the options of EngineConfig, and of every engine its own."""
        fields = (entry.load().options.model_fields for entry in self.engines.values())
        return {*EngineConfig.model_fields}.union(*fields)

    def load_model(self, model: str, config: EngineConfig) -> MaskPredictor:
        """Return the model of that name, folder or hub id, loaded by config.adapter, or
        for None by the adapter that claims it: of other distributions first. Raises
        InputError if none or several do, and for an engine or an option that there is
        not; ModelError if loading fails, PluginError where another's adapter raises anything
        else.
        """
        self.check_engine(config)
        name = ModelName.of(model)
        entry = self.adapter(name, config.adapter, config.revision)
        adapter = entry.load()
        options, heeds = self.loading_options(config), adapter.heeds
        for option in () if heeds is None else sorted(options - heeds):
            raise InputError(
                f"the adapter that loads {model!r:.80} does not heed {option}: leave it "
                f"out; it heeds {', '.join(sorted(heeds or ())) or 'no option'}",
                option,
            )
        if config.loras and not adapter.merges_lora:
            raise InputError(
                f"What loads {model!r:.300} merges no adapters: leave out lora.", "lora"
            )
        try:
            return adapter.load(name, config.by(self))
        except DiseError:
            raise
        except BaseException as error:
            if entry.is_built_in or is_leaving(error, adapter.__module__):
                raise
            problem = f"adapter {adapter.__qualname__} cannot load {model!r:.80}"
            raise entry.failure(problem, error) from error

    def adapter(
        self, model: str, name: str | None = None, revision: str | None = None
    ) -> Entry[type[MaskPredictor]]:
        """Return the adapter of that name, for None the one that claims the model."""
        if name is not None:
            return self.entry(kinds.ADAPTER, name, "adapter")
        return choose(model, self.mask_predictors, revision, self.problems)

    def backend(self, name: str) -> type[Backend[Any]]:
        """Return the engine of that name."""
        engine: type[Backend[Any]] = self.entry(kinds.ENGINE, name).load()
        return engine

    def check_engine(self, config: EngineConfig) -> None:
        """Raise InputError for an unknown engine, or an option that it lacks."""
        engine = self.backend(config.engine)
        for option in config.own.keys() - engine.options.model_fields.keys():
            self._check_others(option, config.own[option])
        engine.check(config)

    def loading_options(self, config: EngineConfig) -> set[str]:
        """Return the options of loading that are not at their default, those of an engine
        too; of a judge its own.
        """
        options = self.backend(config.engine).options_of(config)
        names = {*EngineConfig.model_fields}
        changed = config.model_dump(include=names, exclude_defaults=True)
        changed |= options.model_dump(exclude_defaults=True)
        return changed.keys() - marked(EngineConfig, Mark.NOT_OF_LOADING) - config.shared

    def _check_others(self, option: str, value: object) -> None:
        """Raise InputError for an option that no engine, or only another engine has."""
        engines = {name: entry.load().options for name, entry in self.engines.items()}
        owner = next((name for name in engines if option in engines[name].model_fields), None)
        if owner is None:
            hint = did_you_mean(option, sorted(self.option_names()))
            raise InputError(f"there is no setting {option[:80]!r}{hint}", option)
        options = engines[owner]
        if options(**{option: value}) != options():
            fields = " and ".join(options.model_fields)
            need = "need" if len(options.model_fields) > 1 else "needs"
            raise InputError(f"{fields} {need} engine={owner!r}")

    def _selector(self, name: str, settings: Mapping[str, object]) -> Selector:
        numbered = re.fullmatch(r"(.+?)-0*(\d{1,9})", name)
        is_known = self.has(kinds.SELECTOR, name)
        if not is_known and numbered and self.has(kinds.SELECTOR, f"{numbered[1]}-K"):
            if "k" in settings:
                raise InputError(
                    f"selector {name!r} has its k in its name: leave out the setting k, "
                    f"or name '{numbered[1]}-K'",
                    "selector_settings",
                )
            name, settings = f"{numbered[1]}-K", {**settings, "k": int(numbered[2])}
        elif name.endswith("-K") and is_known and "k" not in settings:
            raise InputError(
                f"selector {name!r} needs a number, for example {name[:-1]}10", "selector"
            )
        selector = self._build(kinds.SELECTOR, name, settings)
        is_built_in = self.entry(kinds.SELECTOR, name).is_built_in
        return selector if is_built_in else CheckedSelector(inner=selector)

    def _build(self, kind: kinds.Kind[S], name: str, settings: GivenSettings) -> S:
        if kind is kinds.UNMASKING and not self.has(kind, name):
            name = name.replace("_", "-")
        entry = self.entry(kind, name)
        cls = entry.load()
        try:
            strategy: S = cls.model_validate(settings or {}, context=self)
        except ValidationError as error:
            raise input_error(error, f"{kind.title} {name!r}", cls.model_fields) from None
        if not entry.is_built_in:
            about = f"{kind.title} {name!r} of plugin {entry.plugin!r}"
            object.__setattr__(strategy, "_origin", (about, entry.plugin))
        return strategy


def _numbered(names: Iterable[str], like: str) -> list[str]:
    """Return the names with the number that the other one ends with, or 10, for their K."""
    number = re.search(r"\d{0,9}\Z", like)
    end = (number and number[0]) or "10"
    return [f"{name[:-1]}{end}" if name.endswith("-K") else name for name in names]


def _as_it_is(kind: kinds.Kind[S], strategy: Strategy, params: BaseModel) -> S:
    """Return an object of the params, a third party's selector as it is checked."""
    if not isinstance(strategy, kind.base):
        raise InputError(f"{strategy!r:.80} is no {kind.base.__name__}", kind.option)
    if getattr(params, f"{kind.option}_settings", None):
        raise InputError(
            f"{kind.option}_settings are for a {kind.title} by its name; "
            f"{strategy!r:.80} has its own already",
            f"{kind.option}_settings",
        )
    if isinstance(strategy, Selector) and not is_ours(strategy):
        return cast("S", CheckedSelector(inner=strategy))
    return strategy


def catalog_of(info: ValidationInfo) -> Catalog:
    """Return the catalog that makes a strategy, for the validator of one whose settings
    name other strategies. Raises InputError where its class was called instead.
    """
    if not isinstance(info.context, Catalog):
        raise InputError(
            "A strategy whose settings name other strategies is made by a catalog: "
            "Catalog.scorer(NAME, SETTINGS) for a scorer, as LLM.catalog does for its requests."
        )
    return info.context
