"""Discovery: every clash is told, and takes no other name. Installed distributions:
tests/app/test_third_party.py.
"""

import functools
import json
import re
import signal
import subprocess
import sys
import types
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pluggy
import pytest
from pydantic import Field, create_model

import dise_core
from dise_core import LLM, EngineConfig, Read, Selector, TokenSequence, TopLogProbs, hookimpl
from dise_core.arrays import Mask
from dise_core.errors import InputError, PluginError, UnknownNameError
from dise_core.models.backend import Backend, Reader
from dise_core.params.base import Params
from dise_core.plugins import discovery as plugins
from dise_core.plugins import hookspecs, kinds
from dise_core.plugins.discovery import discover, installed_catalog, installed_plugins
from dise_core.plugins.entry import Entry
from dise_core.testing import ToyPredictor


class Nothing(Selector):
    """Selects nothing."""

    def select(self, sequence: TokenSequence) -> Mask:
        return sequence.mask_of([])


class Unfinished(Selector):
    """Lacks its method."""


Plugin = Callable[..., EntryPoint]


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Plugin:
    """Return what makes the entry point of a module of hooks: functions, or what they return."""

    def made(name: str, **hooks: object) -> EntryPoint:
        module = types.ModuleType(f"plugin_{name}")
        for hook, value in hooks.items():
            function = value if callable(value) else hookimpl(lambda value=value: value)
            setattr(module, hook, function)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        return EntryPoint(name, module.__name__, "dise")

    return made


def assert_broken(points: Iterable[EntryPoint], text: str) -> None:
    """Assert that one of the plugins is broken, and that the text, a pattern, says how."""
    [problem] = discover(points).problems
    assert re.search(text, str(problem)), problem


class Abacus(Backend[str]):
    """Opens models by their name."""

    @classmethod
    def open(cls, checkpoint: str, config: EngineConfig) -> Reader:
        return {"toy": ToyPredictor()}[checkpoint]


class WithoutOpen(Backend[str]):
    """Lacks its method."""


def test_a_plugin_adds_an_engine(plugin: Plugin) -> None:
    catalog = discover([plugin("mine", dise_engines={"abacus": Abacus})])
    reader = catalog.backend("abacus").open("toy", EngineConfig(engine="abacus"))
    [reading] = reader.read([Read(np.array([1, 2]), np.array([1]), TopLogProbs(1))])
    assert reading.logprobs.shape == (1, 1)
    with pytest.raises(UnknownNameError, match=r"unknown engine 'vllm'\. Known: abacus"):
        catalog.backend("vllm")


class Threads(Params):
    """Has an option of its own."""

    num_threads: int = Field(default=1, ge=1, le=8)


class Threaded(Abacus):
    options = Threads


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"engine": "threaded", "num_threads": 9}, "num_threads=9: Input should be less than"),
        ({"num_threads": 2}, "num_threads needs engine='threaded'"),
        ({"num_threads": "x"}, "num_threads='x': Input should be a valid integer"),
        ({"num_thread": 2}, "there is no setting 'num_thread'. Did you mean 'num_threads'?"),
        ({"engin": "abacus"}, "there is no setting 'engin'. Did you mean 'engine'?"),
    ],
)
def test_an_engine_checks_options_of_its_own(
    plugin: Plugin, options: dict[str, object], problem: str
) -> None:
    both = {"abacus": Abacus, "threaded": Threaded}
    catalog = discover([plugin("mine", dise_engines=both)])
    catalog.check_engine(EngineConfig(engine="threaded", **{"num_threads": 2}))
    catalog.check_engine(EngineConfig(engine="abacus", **{"num_threads": 1}))
    with pytest.raises(InputError, match=re.escape(problem)):
        catalog.check_engine(EngineConfig(**{"engine": "abacus"} | options))


def test_an_engines_own_options_may_be_given_as_its_object() -> None:
    given = {"plugins": [Abacus, Threaded], "engine_options": Threads(num_threads=2)}
    llm = LLM("countdown", lazy=True, engine="Threaded", **given)
    assert llm.config.own == {"num_threads": 2}
    with pytest.raises(InputError, match="num_threads needs engine='Threaded'"):
        LLM("countdown", lazy=True, engine="Abacus", **given)


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        ({"seed": (int, 0)}, "'bad' has an option 'seed', which is taken"),
        ({"threads": (int, ...)}, "'bad' has an option 'threads' without a default"),
    ],
)
def test_an_engine_with_an_option_that_cannot_be_given_is_broken(
    plugin: Plugin, field: dict[str, Any], problem: str
) -> None:
    members = {"options": create_model("Options", __base__=Params, **field)}
    bad = {"bad": type("Bad", (Abacus,), members)}
    assert_broken([plugin("mine", dise_engines=bad)], problem)


def test_what_is_no_class_is_imported_when_it_is_used(plugin: Plugin) -> None:
    values = {"later": "json:dumps", "now": repr, "lost": "json:no_such", "gone": "no_such:verb"}
    catalog = discover([plugin("mine", dise_commands=values)])
    assert list(catalog.commands) == [*values]
    assert catalog.commands["later"].load() is json.dumps
    assert catalog.commands["now"].load() is repr
    for name, problem in (("lost", "AttributeError"), ("gone", "ModuleNotFoundError")):
        with pytest.raises(PluginError, match=rf"plugin 'mine': '.*:.*' cannot be .*{problem}"):
            catalog.commands[name].load()


class PanicError(BaseException):
    """What no handler of Exception catches, like the panics of modules in Rust."""


def raising(error: BaseException) -> Callable[[], object]:
    """Return an implementation of a hook that raises this."""

    @hookimpl
    def implementation() -> object:
        raise error

    return implementation


@hookimpl
def eager(settings: object) -> dict[str, object]:
    return {}


def unmarked() -> dict[str, object]:
    return {}


@pytest.mark.parametrize(
    ("hooks", "text"),
    [
        ({"dise_selectors": {}, "dise_selector": {}},
         "plugin 'bad'.*dise_selector.*Hooks: dise_commands, dise_constraints, dise_datasets"),
        ({"dise_scorers": eager}, "plugin 'bad'.*settings"),
        ({"dise_scorers": raising(KeyError("lost"))},
         r"'bad' fails in dise_scorers\(\): KeyError: 'lost'"),
        ({"dise_scorers": raising(PanicError("poisoned"))},
         r"'bad' fails in dise_scorers\(\): PanicError: poisoned"),
        ({"dise_scorers": raising(KeyboardInterrupt("own"))},
         r"'bad' fails in dise_scorers\(\): KeyboardInterrupt: own"),
        ({"dise_selectors": unmarked}, "plugin 'bad' has no function marked with hookimpl"),
        ({"dise_selectors": [Nothing]}, r"must return \{name: class\}"),
        ({"dise_selectors": {"x": Nothing()}}, "which is not a subclass of Selector"),
        ({"dise_selectors": {"x": dict}}, "which is not a subclass of Selector"),
        ({"dise_selectors": {"x": Unfinished}}, "'x' does not implement select"),
        ({"dise_engines": {"half": WithoutOpen}}, "'half' does not implement open"),
        ({"dise_selectors": {"X y": Nothing}}, "the name 'X y' may hold lower-case letters"),
        ({"dise_selectors": {"a+b": Nothing}}, "the name 'a\\+b' may hold"),
        ({"dise_selectors": {3: Nothing}}, "the name 3 may hold"),
        ({"dise_commands": {"bad": "no place"}}, "is 'no place', which is no \"module:name\""),
    ],
)  # fmt: skip
def test_a_plugin_with_a_wrong_hook_is_named(
    plugin: Plugin, hooks: dict[str, object], text: str
) -> None:
    assert_broken([plugin("bad", **hooks)], text)


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("import no_such_module", "ModuleNotFoundError"),
        ("import sys; sys.exit(7)", "SystemExit: 7"),
        ("class Panic(BaseException): pass\nraise Panic('poisoned')", "Panic: poisoned"),
        ("raise KeyboardInterrupt('own')", "KeyboardInterrupt: own"),
    ],
)
def test_a_plugin_that_cannot_be_imported_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str, error: str
) -> None:
    module = f"module_of_{error[:5]}"
    (tmp_path / f"{module}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    text = f"plugin 'bad' cannot be imported from '{module}': {error}"
    assert_broken([EntryPoint("bad", module, "dise")], text)


def ctrl_c() -> None:
    # Where a shell started the tests in the background, the signal would be ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(
    ("hook", "error"),
    [(hookimpl(ctrl_c), KeyboardInterrupt), (raising(GeneratorExit()), GeneratorExit)],
)
def test_what_ends_the_program_passes_through_a_hook(
    plugin: Plugin, hook: Any, error: type[BaseException]
) -> None:
    with pytest.raises(error):
        discover([plugin("bad", dise_selectors=hook)])


def test_a_class_whose_import_panics_is_named_when_it_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "panicking.py").write_text("class Panic(BaseException): pass\nraise Panic('here')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PluginError, match=r"plugin 'bad': 'panicking:X' cannot be imported: Panic"):
        Entry("panicking:X", "bad").load()


def test_a_class_by_its_place_is_imported_and_checked_when_it_is_used(
    plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {
        "whole": "tests.core.test_plugins:Every",
        "lost": "no_such_module:X",
        "other": "json:JSONDecoder",
        "half": "tests.core.test_plugins:Unfinished",
    }
    monkeypatch.delitem(sys.modules, "json.decoder", raising=False)
    catalog = discover([plugin("mine", dise_selectors=places)])
    assert catalog.problems == ()
    assert catalog.selector("whole")
    for name, problem in (
        ("lost", "'no_such_module:X' cannot be imported"),
        ("other", "'other' is .* not a subclass of Selector"),
        ("half", "'half' does not implement select"),
    ):
        with pytest.raises(PluginError, match=f"plugin 'mine'.*{problem}"):
            catalog.selector(name)


@pytest.mark.parametrize(
    ("allowed", "plugins_found"),
    [(None, {"a", "b"}), ("", set()), ("b", {"b"}), (" a, b,", {"a", "b"}), ("c", set())],
)
def test_the_environment_names_the_plugins_that_are_wanted(
    plugin: Plugin, monkeypatch: pytest.MonkeyPatch, allowed: str | None, plugins_found: set[str]
) -> None:
    points = [
        *entry_points(group="dise", name="strategies"),
        plugin("a", dise_selectors={"x": Nothing}),
        plugin("b", dise_selectors={"y": Nothing}),
    ]
    monkeypatch.setattr(plugins, "entry_points", lambda group: points)
    monkeypatch.delenv("DISE_PLUGINS", raising=False)
    if allowed is not None:
        monkeypatch.setenv("DISE_PLUGINS", allowed)
    catalog = installed_plugins.__wrapped__()
    found = {entry.plugin for entry in catalog.selectors.values()}
    assert found == {"strategies", *plugins_found}
    told = [
        "DISE_PLUGINS names the plugin 'c', which is not installed. Installed: a, b, strategies"
    ]
    assert list(map(str, catalog.problems)) == (told if allowed == "c" else [])


def test_two_classes_asked_for_at_once_are_imported_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "import time; begun.append({0}); time.sleep(0.2); begun.append({0}); X = 1"
    begun: list[int] = []
    for number in range(2):
        text = f"from builtins import begun; {source.format(number)}"
        (tmp_path / f"lonely_{number}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("builtins.begun", begun, raising=False)
    with ThreadPoolExecutor(2) as pool:
        loads = [pool.submit(Entry(f"lonely_{number}:X", "mine").load) for number in range(2)]
        assert [load.result() for load in loads] == [1, 1]
    assert begun in ([0, 0, 1, 1], [1, 1, 0, 0])


def test_broken_plugins_are_each_named_and_the_others_still_found(plugin: Plugin) -> None:
    half = {"taken": Nothing, "left-out": Nothing}
    catalog = discover(
        [
            plugin("wrong", dise_selectors={"x": dict}),
            plugin("mine", dise_selectors={"taken": Nothing}),
            EntryPoint("gone", "no_such_module", "dise"),
            plugin("second", dise_selectors=half),
            plugin("sound", dise_selectors={"nothing": Nothing}),
        ]
    )
    assert {name: entry.plugin for name, entry in catalog.selectors.items()} == {
        "taken": "mine",
        "left-out": "second",
        "second:taken": "second",
        "nothing": "sound",
    }
    assert [problem.plugin for problem in catalog.problems] == ["gone", "second", "wrong"]
    assert str(catalog.problems[1]).startswith("plugin 'second' registers selector 'taken', which")


class Every(Nothing):
    """Selects everything."""

    k: int = 1

    def select(self, sequence: TokenSequence) -> Mask:
        return sequence.mask_of(range(len(sequence)))


def test_a_built_in_keeps_its_name_and_every_other_plugin_has_a_name_of_its_own(
    plugin: Plugin,
) -> None:
    both = {"full": Every, "every-K": Every}
    catalog = discover(
        [
            *entry_points(group="dise", name="strategies"),
            plugin("sound", dise_selectors={"nothing": Nothing}),
            plugin("rival", dise_selectors=both),
            EntryPoint("gone", "no_such_module", "dise"),
        ]
    )
    assert catalog.scorer("dise")
    assert "dise_strategies" in type(catalog.selector("full")).__module__
    parts = catalog.selector("rival:full+sound:nothing+rival:every-3+every-2").model_dump()["parts"]
    assert list(parts) == [{"inner": inner} for inner in ({"k": 1}, {}, {"k": 3}, {"k": 2})]
    for name in ("left-out", "strategies:full", "sound:full", "rival:every-K"):
        problem = (
            "every-10" if name.endswith("-K") else r"a plugin with a problem.*'gone', 'rival'$"
        )
        with pytest.raises(InputError, match=problem):
            catalog.selector(name)


def test_a_broken_adapter_stops_no_model_that_others_claim(plugin: Plugin) -> None:
    toys = {"toy": ToyPredictor}
    catalog = discover(
        [
            EntryPoint("gone", "no_such_module", "dise"),
            *(plugin(name, dise_mask_predictors=toys) for name in "ab"),
            *entry_points(group="dise", name="adapters"),
        ]
    )
    assert catalog.adapter("countdown").is_built_in
    for name, plugin_name in (("toy", "a"), ("a:toy", "a"), ("b:toy", "b")):
        assert catalog.adapter("countdown", name).plugin == plugin_name
    with pytest.raises(
        UnknownNameError, match=r"unknown model 'lost'.* with a problem.*: 'b', 'gone'"
    ):
        catalog.adapter("lost")


def test_the_log_says_once_which_plugins_are_broken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    problems = (PluginError("plugin 'gone' is broken"),)
    catalog = replace(installed_plugins(), problems=problems)
    monkeypatch.setattr(plugins, "installed_plugins", lambda: catalog)
    once = functools.cache(installed_catalog.__wrapped__)
    assert once() is once() is catalog
    assert caplog.messages == ["dise: plugin 'gone' is broken (`dise plugins` lists what works)"]


def test_whoever_takes_a_built_in_name_is_at_fault_and_not_dise(plugin: Plugin) -> None:
    ours = list(entry_points(group="dise", name="strategies"))
    catalog = discover([plugin("a", dise_selectors={"full": Nothing}), *ours])
    assert catalog.selectors["full"].is_built_in
    [problem] = catalog.problems
    assert str(problem) == (
        "plugin 'a' registers selector 'full', which another plugin has: write 'a:full' for its "
        "own; its other names are as it says"
    )
    twin = plugin("strategies", dise_selectors={"x": Nothing})
    catalog = discover([twin, *ours])
    assert catalog.selectors["full"].is_built_in
    [problem] = catalog.problems
    assert str(problem).endswith(
        "rename or uninstall the plugin 'strategies' at 'plugin_strategies'"
    )


def test_every_hook_is_specified_and_asked() -> None:
    specified = {name for name in vars(hookspecs) if name.startswith("dise_")}
    assert specified == {kind.hook for kind in kinds.KINDS}
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    for point in entry_points(group=hookspecs.PROJECT):
        manager.register(point.load())
    manager.check_pending()


def test_who_wants_a_strategys_names_does_not_import_the_doors() -> None:
    script = (
        "import sys, dise_core, dise_strategies.plugin\n"
        "doors = ['dise_core.front.llm', 'dise_core.front.async_llm', 'dise_core.front.planner']\n"
        "assert not sys.modules.keys() & set(doors), 'a door was imported'\n"
        "from dise_core import *\n"
        "assert LLM is sys.modules[doors[0]].LLM and AsyncLLM.__name__ == 'AsyncLLM'\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    with pytest.raises(AttributeError, match="module 'dise_core' has no attribute 'LMM'"):
        _ = dise_core.LMM  # type: ignore[attr-defined]
