"""Names: the selector grammar, unknown names, settings."""

import re
from collections.abc import Callable

import pytest

from dise_core import LLM, EngineConfig, InputError
from dise_core.errors import UnknownNameError
from dise_core.models.attention import Causal
from dise_core.plugins.catalog import Catalog
from dise_core.plugins.discovery import installed_catalog
from dise_core.plugins.entry import Entry
from dise_core.scoring.scorer import Union
from dise_core.testing.toy_model import ToyPredictor


def test_selectors_have_settings_inside_unions_too() -> None:
    selector = installed_catalog().selector
    assert selector("last-K", {"k": 7}) == selector("last-7")
    union = selector("answer + last-K+last-3", {"answer": {"pattern": "a"}, "last-K": {"k": 2}})
    parts = selector("answer", {"pattern": "a"}), selector("last-2"), selector("last-3")
    assert union == Union(parts=parts)


@pytest.mark.parametrize("make", [Catalog, lambda entries: installed_catalog().having(**entries)])
def test_a_kind_that_there_is_not_is_refused(make: Callable[..., Catalog]) -> None:
    problem = "unknown kind 'unmasking'. Did you mean 'unmasking_policies'? Known: commands, "
    with pytest.raises(UnknownNameError, match=re.escape(problem)):
        make({"unmasking": {}})


def test_llada_writes_policies_with_an_underscore() -> None:
    catalog = installed_catalog()
    assert catalog.unmasking_policy("low_confidence") == catalog.unmasking_policy("low-confidence")


def models(**classes: type[ToyPredictor]) -> Catalog:
    """Return a catalog of these adapters, each of a plugin and a distribution of its own."""
    entries = {name: Entry(cls, f"plugin-{name}", f"dist-{name}") for name, cls in classes.items()}
    return Catalog({"mask_predictors": entries, "engines": installed_catalog().engines})


def beside_ours(ours: type[ToyPredictor], **classes: type[ToyPredictor]) -> Catalog:
    """Return a catalog of these adapters and one that is built in."""
    entries = dict(models(**classes).mask_predictors) | {"ours": Entry(ours, "adapters", "dise")}
    return models().having(mask_predictors=dict(sorted(entries.items())))


def adapter(
    claims: Callable[[str], bool], explain: Callable[[str], str | None] = lambda _: None
) -> type[ToyPredictor]:
    """Return an adapter that claims and explains what these functions say."""
    methods = {"claims": staticmethod(claims), "explain": staticmethod(explain)}
    return type("Adapter", (ToyPredictor,), methods)


ASKED: list[str] = []
"""What the adapter Asked was asked about."""


def claim_and_note(model: str) -> bool:
    ASKED.append(model)
    return True


def fail(model: str) -> bool:
    raise OSError("no route\nto the hub")


def miss_a_folder(model: str) -> str | None:
    raise InputError(f"there is no folder {model!r}", "model")


Rival, Asked, Failing = adapter(lambda _: True), adapter(claim_and_note), adapter(fail)
Shy = adapter(lambda _: False)
Telling = adapter(lambda _: False, lambda model: f"{model} is a spoon")
Blocked = adapter(lambda _: False, miss_a_folder)


@pytest.mark.parametrize(
    ("catalog", "model", "adapter"),
    [
        (models(toy=ToyPredictor), "toy", ToyPredictor),
        (models(any=Rival), "whatever", Rival),
        (models(toy=ToyPredictor, any=Rival, fails=Failing), "toy", ToyPredictor),
        (beside_ours(Asked, other=Shy), "x", Asked),
        (beside_ours(Rival, fails=Failing), "x", Rival),
        (models(fails=Failing, other=Rival), "x", Rival),
    ],
)
def test_a_model_goes_to_the_adapter_that_has_its_name_or_claims_it(
    catalog: Catalog, model: str, adapter: type[ToyPredictor]
) -> None:
    assert type(catalog.load_model(model, EngineConfig())) is adapter


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(
        UnknownNameError, match=r"unknown model 'countdwn'. Did you mean 'countdown'\?"
    ):
        installed_catalog().load_model("countdwn", EngineConfig())


def test_adapters_are_not_asked_where_a_name_or_another_distribution_wins() -> None:
    ASKED.clear()
    assert type(beside_ours(Asked, other=Rival).load_model("x", EngineConfig())) is Rival
    models(toy=ToyPredictor, asked=Asked, fails=Failing).load_model("toy", EngineConfig())
    assert ASKED == []


def test_rivals_are_told_to_choose_and_never_to_uninstall() -> None:
    with pytest.raises(InputError, match=r"choose one with --model-args adapter=NAME") as caught:
        beside_ours(Rival, one=Rival, two=Rival).load_model("x", EngineConfig())
    rivals = "claimed by 'one' of plugin 'plugin-one' and 'two' of plugin 'plugin-two'"
    assert rivals in str(caught.value)
    assert "uninstall" not in str(caught.value)
    assert "ours" not in str(caught.value)


def test_the_adapter_that_the_user_names_loads_the_model_whoever_claims_it() -> None:
    catalog = beside_ours(Rival, one=Rival, two=Asked, shy=Shy)
    for name, cls in (("ours", Rival), ("two", Asked), ("shy", Shy)):
        assert type(catalog.load_model("x", EngineConfig(adapter=name))) is cls
    with pytest.raises(
        UnknownNameError,
        match=r"unknown adapter 'tow'. Did you mean 'two'\? Known: one, ours, shy, two",
    ):
        catalog.load_model("x", EngineConfig(adapter="tow"))


def test_an_adapter_is_the_models_and_a_judge_finds_its_own() -> None:
    class Judge(ToyPredictor):
        def __init__(self) -> None:
            super().__init__(attention=Causal())

        @classmethod
        def claims(cls, model: str) -> bool:
            return model == "judge"

    llm = LLM("x", judge="judge", adapter="shy", catalog=models(shy=Shy, judge=Judge))
    assert (type(llm.predictor), type(llm.planner.predictors["judge"])) == (Shy, Judge)


def test_what_failed_is_told_where_nobody_claims_the_model() -> None:
    failure = r"Adapter 'fails' of plugin 'plugin-fails' fails in claims\(\): "
    failure += "OSError: no route to the hub"
    with pytest.raises(
        UnknownNameError,
        match=rf"unknown model 'x'\. Known: fails, ours\. {failure}\. Load it with",
    ):
        beside_ours(Shy, fails=Failing).load_model("x", EngineConfig())
    with pytest.raises(InputError, match=rf"there is no folder 'x'; {failure}"):
        beside_ours(Blocked, fails=Failing).load_model("x", EngineConfig())


def test_what_adapters_know_of_a_model_that_nobody_claims_is_told() -> None:
    with pytest.raises(
        UnknownNameError,
        match=r"unknown model 'x'\. .* x is a spoon\. Load it with .*--model-args adapter=NAME",
    ):
        models(one=Telling, two=Telling).load_model("x", EngineConfig())
    with pytest.raises(InputError, match=r"^there is no folder 'x'$"):
        models(one=Telling, two=Blocked).load_model("x", EngineConfig())
