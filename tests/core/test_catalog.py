"""Names: the selector grammar, unknown names, settings."""

import numpy as np
import pytest

from dise_core import EngineConfig, InputError
from dise_core.catalog import Catalog, Entry
from dise_core.errors import UnknownNameError
from dise_core.plugins import installed_catalog
from dise_core.sequence import TokenSequence
from dise_core.testing.toy_model import END, SPECIAL, ToyPredictor

SEQUENCE = TokenSequence(np.array([1, 2, 3, 4, 5, END, END]), 3, SPECIAL, 2)


def selected(text: str) -> list[int]:
    return np.flatnonzero(installed_catalog().selector(text).select(SEQUENCE)).tolist()


@pytest.mark.parametrize(
    ("text", "positions"),
    [
        ("last-1", [4]),
        ("last-10", [3, 4]),
        ("prompt-last-2", [1, 2]),
        ("prompt-last-7+response-first-2", [0, 1, 2, 3, 4]),
        ("first-1 + last-block", [3, 5, 6]),
        ("full", [0, 1, 2, 3, 4, 5, 6]),
    ],
)
def test_the_grammar_of_selectors(text: str, positions: list[int]) -> None:
    assert selected(text) == positions


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("last_10", "unknown selector 'last_10'. Did you mean 'last-K'"),
        ("lost-10", "unknown selector 'lost-10'"),
        ("", "unknown selector ''"),
        ("full+", "unknown selector ''"),
        ("last-K", "selector 'last-K' needs a number, for example last-10"),
        ("last-0", "selector 'last-K': k=0: Input should be greater than 0"),
        ("last-1.5", "unknown selector 'last-1.5'"),
    ],
)
def test_a_bad_selector_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        installed_catalog().selector(text)
    assert problem in str(caught.value)


def test_an_unknown_name_lists_the_known_ones_and_suggests_the_nearest() -> None:
    catalog = installed_catalog()
    with pytest.raises(UnknownNameError, match=r"unknown scorer 'dize'. Did you mean 'dise'\? Known: ar-perplexity, dise, "):
        catalog.scorer("dize")
    with pytest.raises(UnknownNameError, match="unknown unmasking policy 'lowest'"):
        catalog.unmasking_policy("lowest")
    with pytest.raises(UnknownNameError, match="unknown length controller 'fix'"):
        catalog.length_controller("fix")


def test_unknown_settings_of_a_strategy_are_refused() -> None:
    with pytest.raises(InputError, match="scorer 'dise': there is no setting 'samples'"):
        installed_catalog().scorer("dise", {"samples": 3})


def test_llada_writes_policies_with_an_underscore() -> None:
    assert installed_catalog().unmasking_policy("low_confidence") == installed_catalog().unmasking_policy("low-confidence")


def models(**classes: type[ToyPredictor]) -> Catalog:
    return Catalog({}, {}, {}, {}, {name: Entry(cls, f"plugin-{name}") for name, cls in classes.items()})


class Rival(ToyPredictor):
    """Claims everything."""

    @classmethod
    def claims(cls, model: str) -> bool:
        return True


def test_a_model_goes_to_the_adapter_that_claims_it() -> None:
    assert isinstance(models(toy=ToyPredictor).load_model("toy", EngineConfig()), ToyPredictor)
    assert isinstance(models(any=Rival).load_model("whatever", EngineConfig()), Rival)


def test_a_name_wins_over_other_claims() -> None:
    assert type(models(toy=ToyPredictor, any=Rival).load_model("toy", EngineConfig())) is ToyPredictor


def test_two_claims_are_refused_by_the_plugins_names() -> None:
    with pytest.raises(InputError, match="claimed by 'any' of plugin 'plugin-any' and 'other' of plugin 'plugin-other'"):
        models(any=Rival, other=Rival).load_model("x", EngineConfig())


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown model 'countdwn'. Did you mean 'countdown'\?"):
        installed_catalog().load_model("countdwn", EngineConfig())
