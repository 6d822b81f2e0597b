"""Third parties' strategies that no package brings: classes, modules and objects; and how their
errors are told, which is as those of packages are.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import subprocess
import sys
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from dise_core import (
    LLM,
    AsyncLLM,
    Generation,
    InputError,
    LengthController,
    PlanError,
    PluginError,
    Read,
    Reviser,
    SamplingParams,
    Score,
    Scorer,
    ScoringParams,
    Selector,
    TokenLogProbs,
    UnknownNameError,
    UnmaskingPolicy,
    hookimpl,
)
from dise_core.models.predictor import MaskPredictor
from dise_core.plugins.entry import Entry
from dise_core.plugins.kinds import KINDS
from dise_core.testing import ToyPredictor
from tests.guests import with_guests

HERE = __name__

IMPORTS = """
from typing import Any, ClassVar

import numpy as np

from dise_core import Read, Score, Scorer, Selector, TokenLogProbs
"""


class EverySecond(Selector):
    """Selects every second token."""

    step: int = 2

    def select(self, sequence: Any) -> Any:
        return sequence.mask_of(sequence.response_positions[:: self.step])


class Doubted(Scorer):
    """The mean of the k least sure tokens."""

    default_selector: ClassVar[str] = "response"
    k: int = 1

    def score(self, sequence: Any, selector: Any) -> Any:
        at = np.flatnonzero(selector.select(sequence))
        [reading] = yield [Read(sequence.ids, at, TokenLogProbs(sequence.ids[at]))]
        return Score.mean_of(np.sort(reading.logprobs)[: self.k], at[: self.k])


class Plain(LengthController):
    """Writes once."""

    def generate(self, prompt: Any, denoiser: Any, scorer: Any) -> Any:
        text = yield from denoiser.write(prompt, denoiser.max_tokens)
        return Generation(text, (yield from scorer.evaluate(text)))


class First(UnmaskingPolicy):
    """Commits the first masks."""

    def choose(self, step: Any) -> Any:
        return np.arange(step.quota)


class Same(Reviser):
    """Changes nothing."""

    def revise(self, generation: Any, denoiser: Any, scorer: Any) -> Any:
        yield []
        return generation


def toy(**options: Any) -> LLM:
    return LLM(ToyPredictor(), **options)


def score(llm: LLM, **params: Any) -> Any:
    [answer] = llm.score("abc", "defgh", ScoringParams(**params), chat=False)
    return answer.outputs[0]


def test_objects_score_as_their_names_do() -> None:
    llm = toy(plugins=[Doubted, EverySecond])
    by_object = score(llm, scorer=Doubted(k=3), selector=EverySecond(step=3))
    assert by_object.score.num_positions == 2
    assert (by_object.scorer, by_object.selector) == ("Doubted(k=3)", "EverySecond(step=3)")
    for name in ("Doubted", f"{HERE}:Doubted"):
        named = score(llm, scorer=name, scorer_settings={"k": 3}, selector=EverySecond(step=3))
        assert named.score.value == by_object.score.value
        assert named.scorer == name
    assert score(toy(), scorer=Doubted(k=3)).selector == "response"


def test_an_answer_is_written_by_objects_of_every_kind() -> None:
    objects = {"length": Plain(), "unmasking": First(), "reviser": Same(), "scorer": Doubted()}
    [answer] = toy().generate("abc", SamplingParams(max_tokens=6, **objects))
    [output] = answer.outputs
    assert (output.scorer, output.reviser) == ("Doubted(k=1)", "Same()")
    [named] = toy(plugins=[Plain, First, Same, Doubted]).generate(
        "abc",
        SamplingParams(
            max_tokens=6, length="Plain", unmasking="First", reviser="Same", scorer="Doubted"
        ),
    )
    assert named.outputs[0].token_ids == output.token_ids


def test_what_params_say_of_an_object_is_its_class_and_its_settings() -> None:
    params = ScoringParams(scorer=Doubted(k=3), selector="last-2")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fields = json.loads(params.model_dump_json())
    assert fields["scorer"] == {"class": f"{HERE}:Doubted", "settings": {"k": 3}}
    assert fields["selector"] == "last-2"
    schema = SamplingParams.model_json_schema()["properties"]
    assert schema["scorer"]["type"] == "string"
    assert ScoringParams.of(SamplingParams(scorer=Doubted(k=3))).scorer == Doubted(k=3)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"scorer": EverySecond()}, "give the name of a scorer, or an object"),
        ({"selector": EverySecond}, "give the name of a selector, or an object"),
        ({"scorer": 3}, "Input should be a valid string"),
    ],
)
def test_only_an_object_of_the_kind_is_taken(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        ScoringParams(**fields)


def test_an_object_has_its_settings_already() -> None:
    with pytest.raises(InputError, match=r"scorer_settings are for .*Doubted\(k=1\) has its own"):
        score(toy(), scorer=Doubted(), scorer_settings={"k": 2})


def test_what_is_kept_has_names() -> None:
    from dise_app.server.limits import Defaults

    with pytest.raises(InputError, match=r"scorer=Doubted\(k=1\) is an object, and what is kept"):
        Defaults({"scorer": Doubted()})


def test_modules_and_objects_with_hooks_are_plugins_too() -> None:
    class Mine:
        @hookimpl
        def dise_selectors(self) -> dict[str, type[Selector]]:
            return {"seconds": EverySecond, "full": EverySecond}

    module = types.ModuleType("lent")
    module.dise_scorers = hookimpl(lambda: {"doubted": Doubted})  # type: ignore[attr-defined]
    llm = toy(plugins=[Mine(), module])
    assert score(llm, scorer="doubted", selector="seconds").score.num_positions == 1
    assert score(llm, selector="Mine:full").score.num_positions == 3
    assert score(llm, selector="full").score.num_positions == 8
    assert "plugin 'Mine' registers selector 'full'" in str(llm.catalog.problems[-1])


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (dict, "<class 'dict'> is no plugin: give a subclass of Scorer, Selector"),
        (types.ModuleType("empty"), "plugin 'empty' has no function marked with hookimpl"),
        (Reviser, "'Reviser' does not implement revise"),
    ],
)
def test_what_is_no_plugin_is_refused(given: object, problem: str) -> None:
    with pytest.raises(PluginError, match=problem):
        toy(plugins=[given])


def test_a_class_brings_a_model_and_an_async_engine_takes_plugins_too() -> None:
    class Mine(ToyPredictor):
        @classmethod
        def claims(cls, model: str, revision: str | None = None) -> bool:
            return model == "mine"

    async def run() -> float:
        async with AsyncLLM("mine", plugins=[Mine, Doubted]) as llm:
            assert isinstance(llm.predictor, MaskPredictor)
            [answer] = await llm.score("abc", "de", ScoringParams(scorer="Doubted"), chat=False)
            return answer.outputs[0].score.value

    assert asyncio.run(run()) < 0


def body(function: Callable[..., Any]) -> type[Scorer]:
    return type("Boom", (Scorer,), {"score": function, "__module__": "acme_lab"})


def dividing(self: Any, sequence: Any, selector: Any) -> Any:
    yield []
    return Score(1 / 0, np.arange(1))


def one_read(self: Any, sequence: Any, selector: Any) -> Any:
    yield Read(sequence.ids, np.arange(1), TokenLogProbs(sequence.ids[:1]))


def no_yield(self: Any, sequence: Any, selector: Any) -> Any:
    return 1.0


def misspelling(self: Any, sequence: Any, selector: Any) -> Any:
    return sequence.response_ids


def beyond(self: Any, sequence: Any, selector: Any) -> Any:
    yield []
    return Score(-1.0, np.array([10**6]))


def leaving(self: Any, sequence: Any, selector: Any) -> Any:
    yield []
    raise SystemExit(3)


SLIPS = [
    (dividing, ": ZeroDivisionError: division by zero"),
    (one_read, r" must yield a list of Reads, as in `yield \[Read\(...\)\]`, not Read: "),
    (no_yield, r" must make a plan, a generator, not float: 1.0; write `\[reading\] = yield"),
    (misspelling, ": AttributeError: 'TokenSequence' object has no attribute 'response_ids'"),
    (beyond, r" must return positions in 0\.\.8, not an array of int64"),
    (leaving, ": SystemExit: 3"),
]


@pytest.mark.parametrize(("function", "problem"), SLIPS)
def test_a_scorers_slip_is_told_with_its_kind_name_and_plugin(
    function: Callable[..., Any], problem: str
) -> None:
    entry = Entry(body(function), "acme", "acme", "boom")
    llm = toy(catalog=toy().catalog.having(scorers={"boom": entry}))
    with pytest.raises(
        (PlanError, PluginError), match=f"^scorer 'boom' of plugin 'acme'{problem}"
    ) as caught:
        score(llm, scorer="boom", selector="response")
    assert caught.value.plugin == "acme"
    with pytest.raises((PlanError, PluginError), match=f"^scorer Boom of acme_lab{problem}"):
        score(toy(), scorer=body(function)(), selector="response")


class Broken(EverySecond, Plain, First, Same):
    """Raises whatever it is asked."""

    def select(self, *_: Any) -> Any:
        raise IndexError("index 10 is out of bounds")

    generate = choose = revise = select


@pytest.mark.parametrize(
    ("option", "plural", "title"),
    [
        (k.option, k.plural, k.title)
        for k in KINDS
        if k.option in ("selector", "length", "unmasking", "reviser")
    ],
)
def test_every_kind_of_strategy_is_told_by_name(option: str, plural: str, title: str) -> None:
    catalog = with_guests(**{plural: {"bad": Broken}})
    with pytest.raises(PlanError, match=f"^{title} 'bad' of plugin 'guest': IndexError: index 10"):
        toy(catalog=catalog).generate("abc", SamplingParams(max_tokens=4, **{option: "bad"}))


class Failing(ToyPredictor):
    """Raises `error` where `at` says."""

    def __init__(self, at: str, error: BaseException) -> None:
        super().__init__()
        self.at, self.error = at, error

    def read(self, reads: Any) -> Any:
        raise self.error

    def load_weights(self, shown: Any = None) -> None:
        if self.at == "load_weights":
            raise self.error


class Unloadable(ToyPredictor):
    """Claims one model, and cannot load it."""

    @classmethod
    def claims(cls, model: str, revision: str | None = None) -> bool:
        return model == "mine"

    @classmethod
    def load(cls, model: str, config: Any) -> Any:
        raise KeyError("hidden_size")


@pytest.mark.parametrize("at", ["load_weights", "read"])
@pytest.mark.parametrize("error", [RuntimeError("no memory"), SystemExit("no memory")])
def test_what_a_model_raises_is_no_scorers_fault_and_names_its_adapter(
    at: str, error: BaseException
) -> None:
    said = f"^adapter Failing of {HERE}: {type(error).__name__}: no memory$"
    with pytest.raises(PlanError, match=said) as caught:
        score(LLM(Failing(at, error)), scorer=Doubted())
    assert caught.value.__cause__ is error


def test_an_adapter_that_cannot_load_is_named_with_its_model() -> None:
    said = f"^plugin '{HERE}': adapter Unloadable cannot load 'mine': KeyError: 'hidden_size'$"
    with pytest.raises(PluginError, match=said):
        LLM("mine", plugins=[Unloadable])
    with pytest.raises(UnknownNameError):
        LLM("theirs", plugins=[Unloadable])


def test_built_in_strategies_are_not_wrapped() -> None:
    from dise_core.scoring.contract import planned
    from dise_strategies.scorers.dise import DiSE

    plan = planned("scorer", DiSE(), DiSE().score, None, None)
    assert plan.gi_code is DiSE.score.__code__  # type: ignore[attr-defined]


def test_the_command_takes_a_class_by_its_place(tmp_path: Path) -> None:
    sources = map(inspect.getsource, (EverySecond, Doubted))
    (tmp_path / "my_module.py").write_text("\n\n".join([IMPORTS, *sources]))
    command = (sys.executable, "-m", "dise", "score", "--response", "1+2=3", "--no-chat", "--json")
    names = ("--scorer", "my_module:Doubted", "--scorer-setting", "k=2", "--selector")
    done = subprocess.run(
        [*command, *names, "my_module:EverySecond+last-2"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [output] = json.loads(done.stdout)["outputs"]
    assert output["score"]["scorer"] == "my_module:Doubted"
    assert output["score"]["num_positions"] == 2
    lost = subprocess.run(
        [*command, "--scorer", "my_module:Lost"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert lost.returncode == 2
    assert "scorer 'my_module:Lost' is neither an installed plugin's, as PLUGIN:NAME" in lost.stderr
