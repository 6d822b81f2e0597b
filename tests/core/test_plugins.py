"""Discovery: every clash is refused by name. Installed distributions:
tests/app/test_third_party.py.
"""

import re
import sys
import types
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import numpy as np
import pytest

from dise_core import EngineConfig, Read, Selector, TokenSequence, TopLogProbs, hookimpl, plugins
from dise_core.arrays import Mask
from dise_core.backend import Backend, Reader
from dise_core.errors import PluginError, UnknownNameError
from dise_core.plugins import discover, installed_catalog, installed_plugins
from dise_core.testing import ToyPredictor


class Nothing(Selector):
    """Selects nothing."""

    def select(self, sequence: TokenSequence) -> Mask:
        return sequence.mask_of([])


class Unfinished(Selector):
    """Lacks its method."""


def plugin(
    monkeypatch: pytest.MonkeyPatch, name: str, **functions: Callable[..., object]
) -> EntryPoint:
    """Return the entry point of a module made of these functions."""
    module = types.ModuleType(f"plugin_{name}")
    vars(module).update(functions)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return EntryPoint(name, module.__name__, "dise")


def assert_broken(points: Iterable[EntryPoint], text: str) -> None:
    """Assert that one of the plugins is broken, and that the text, a pattern, says how."""
    [problem] = discover(points).problems
    assert re.search(text, str(problem)), problem


def selectors(classes: object) -> Callable[[], object]:
    @hookimpl
    def dise_selectors() -> object:
        return classes

    return dise_selectors


def test_the_built_ins_are_found_like_any_plugin() -> None:
    catalog = installed_catalog()
    assert catalog.scorers["dise"].plugin == "strategies"
    assert catalog.mask_predictors["countdown"].plugin == "adapters"
    assert catalog.mask_predictors["countdown"].is_built_in
    assert catalog.scorers["dise"].is_built_in


def test_a_plugin_adds_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = discover(
        [plugin(monkeypatch, "mine", dise_selectors=selectors({"nothing": Nothing}))]
    )
    assert catalog.selectors["nothing"].cls is Nothing
    assert catalog.selectors["nothing"].plugin == "mine"
    assert not catalog.selectors["nothing"].is_built_in


class Abacus(Backend[str]):
    """Opens models by their name."""

    @classmethod
    def open(cls, checkpoint: str, config: EngineConfig) -> Reader:
        return {"toy": ToyPredictor()}[checkpoint]


class WithoutOpen(Backend[str]):
    """Lacks its method."""


def engines(classes: object) -> Callable[[], object]:
    @hookimpl
    def dise_engines() -> object:
        return classes

    return dise_engines


def test_a_plugin_adds_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = discover([plugin(monkeypatch, "mine", dise_engines=engines({"abacus": Abacus}))])
    reader = catalog.backend("abacus").open("toy", EngineConfig(engine="abacus"))
    [reading] = reader.read([Read(np.array([1, 2]), np.array([1]), TopLogProbs(1))])
    assert reading.logprobs.shape == (1, 1)
    with pytest.raises(UnknownNameError, match=r"unknown engine 'vllm'\. Known: abacus"):
        catalog.backend("vllm")
    assert_broken(
        [plugin(monkeypatch, "mine", dise_engines=engines({"half": WithoutOpen}))],
        "'half' does not implement open",
    )


def test_two_plugins_that_claim_one_name_are_both_named(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        plugin(monkeypatch, name, dise_selectors=selectors({"same": Nothing}))
        for name in ("one", "two")
    ]
    assert_broken(
        points, r"plugins '(one|two)' and '(two|one)' both claim 'same' in dise_selectors"
    )


def test_two_plugins_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    point = plugin(monkeypatch, "twin", dise_selectors=selectors({"x": Nothing}))
    assert_broken([point, point], "two plugins are called 'twin'")


def test_an_import_failure_names_the_plugin() -> None:
    assert_broken(
        [EntryPoint("gone", "no_such_module", "dise")],
        "plugin 'gone' cannot be imported from 'no_such_module': ModuleNotFoundError",
    )


def test_a_misspelt_hook_names_the_plugin_and_the_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = selectors({})
    point = plugin(monkeypatch, "typo", dise_selectors=selectors({}), dise_selector=hook)
    assert_broken(
        [point], r"plugin 'typo'.*dise_selector.*Hooks: dise_engines, dise_length_controllers"
    )


def test_a_hook_with_arguments_names_the_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    @hookimpl
    def dise_scorers(settings: object) -> dict[str, object]:
        return {}

    assert_broken(
        [plugin(monkeypatch, "eager", dise_scorers=dise_scorers)], r"plugin 'eager'.*settings"
    )


def test_a_plugin_without_hooks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def dise_selectors() -> dict[str, object]:
        return {}

    assert_broken(
        [plugin(monkeypatch, "bare", dise_selectors=dise_selectors)],
        "plugin 'bare' has no function marked with hookimpl",
    )


@pytest.mark.parametrize(
    ("classes", "text"),
    [
        ([Nothing], r"must return \{name: class\}"),
        ({"x": Nothing()}, "which is not a subclass of Selector"),
        ({"x": dict}, "which is not a subclass of Selector"),
        ({"x": Unfinished}, "'x' does not implement select"),
        ({"X y": Nothing}, "the name 'X y' may hold lower-case letters"),
        ({"a+b": Nothing}, "the name 'a\\+b' may hold"),
        ({3: Nothing}, "the name 3 may hold"),
    ],
)
def test_a_wrong_answer_of_a_hook_is_refused(
    monkeypatch: pytest.MonkeyPatch, classes: object, text: str
) -> None:
    assert_broken([plugin(monkeypatch, "wrong", dise_selectors=selectors(classes))], text)


def test_a_hook_that_raises_names_the_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    @hookimpl
    def dise_scorers() -> dict[str, object]:
        raise KeyError("lost")

    assert_broken(
        [plugin(monkeypatch, "broken", dise_scorers=dise_scorers)],
        r"plugin 'broken' fails in dise_scorers\(\): KeyError: 'lost'",
    )


def test_broken_plugins_are_each_named_and_the_others_still_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    half = {"taken": Nothing, "left-out": Nothing}
    catalog = discover(
        [
            plugin(monkeypatch, "wrong", dise_selectors=selectors({"x": dict})),
            plugin(monkeypatch, "mine", dise_selectors=selectors({"taken": Nothing})),
            EntryPoint("gone", "no_such_module", "dise"),
            plugin(monkeypatch, "second", dise_selectors=selectors(half)),
            plugin(monkeypatch, "sound", dise_selectors=selectors({"nothing": Nothing})),
        ]
    )
    assert {name: entry.plugin for name, entry in catalog.selectors.items()} == {
        "taken": "mine",
        "nothing": "sound",
    }
    assert [problem.plugin for problem in catalog.problems] == ["gone", "second", "wrong"]
    assert "plugins 'mine' and 'second' both claim 'taken'" in str(catalog.problems[1])


def test_only_a_name_that_may_be_a_broken_plugins_cannot_be_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = {"full": Nothing, "left-out": Nothing}
    catalog = discover(
        [
            *entry_points(group="dise", name="strategies"),
            plugin(monkeypatch, "sound", dise_selectors=selectors({"nothing": Nothing})),
            plugin(monkeypatch, "rival", dise_selectors=selectors(both)),
            EntryPoint("gone", "no_such_module", "dise"),
        ]
    )
    assert catalog.scorer("dise")
    assert catalog.selector("nothing+last-10")
    with pytest.raises(PluginError, match="'strategies' and 'rival' both claim 'full'"):
        catalog.selector("last-10+full")
    for name in ("left-out", "elsewhere"):
        with pytest.raises(UnknownNameError, match=f"'{name}'.* plugin 'gone' .*; .*'rival' both"):
            catalog.selector(name)


def test_a_broken_adapter_stops_no_model_that_others_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    @hookimpl
    def dise_mask_predictors() -> dict[str, object]:
        return {"toy": ToyPredictor}

    catalog = discover(
        [
            EntryPoint("gone", "no_such_module", "dise"),
            *(
                plugin(monkeypatch, name, dise_mask_predictors=dise_mask_predictors)
                for name in "ab"
            ),
            *entry_points(group="dise", name="adapters"),
        ]
    )
    assert catalog.adapter("countdown").is_built_in
    with pytest.raises(PluginError, match="plugins 'a' and 'b' both claim 'toy'"):
        catalog.adapter("toy")
    with pytest.raises(PluginError, match="plugins 'a' and 'b' both claim 'toy'"):
        catalog.adapter("countdown", "toy")
    with pytest.raises(UnknownNameError, match=r"unknown model 'lost'.* plugin 'gone' cannot be"):
        catalog.adapter("lost")


def test_the_log_says_once_which_plugins_are_broken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    problems = (PluginError("plugin 'gone' is broken"),)
    catalog = replace(installed_plugins(), problems=problems)
    monkeypatch.setattr(plugins, "installed_plugins", lambda: catalog)
    installed_catalog.cache_clear()
    try:
        assert installed_catalog() is installed_catalog() is catalog
    finally:
        installed_catalog.cache_clear()
    assert caplog.messages == ["dise: plugin 'gone' is broken (`dise plugins` lists what works)"]


def test_a_plugin_that_ends_the_process_when_imported_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "leaves_at_once.py").write_text("import sys; sys.exit('bye')")
    monkeypatch.syspath_prepend(tmp_path)
    assert_broken(
        [EntryPoint("leaver", "leaves_at_once", "dise")],
        "plugin 'leaver' cannot be imported from 'leaves_at_once': SystemExit: bye",
    )


def test_whoever_takes_a_built_in_name_is_at_fault_and_not_dise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = list(entry_points(group="dise", name="strategies"))
    catalog = discover(
        [plugin(monkeypatch, "a", dise_selectors=selectors({"full": Nothing})), *ours]
    )
    assert catalog.selectors["full"].is_built_in
    [problem] = catalog.problems
    assert str(problem) == "plugins 'strategies' and 'a' both claim 'full' in dise_selectors()"
    twin = plugin(monkeypatch, "strategies", dise_selectors=selectors({"x": Nothing}))
    catalog = discover([twin, *ours])
    assert catalog.selectors["full"].is_built_in
    [problem] = catalog.problems
    assert str(problem).endswith(
        "rename or uninstall the plugin 'strategies' at 'plugin_strategies'"
    )
