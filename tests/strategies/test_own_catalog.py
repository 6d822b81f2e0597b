"""A catalog of a program's own is what strategies, adapters and checks ask, and no other."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
from pydantic import PrivateAttr, ValidationInfo, model_validator

from dise_adapters import predictor_of
from dise_adapters.families.a2d import A2D_QWEN2
from dise_adapters.families.family import Checkpoint
from dise_core import (
    LLM,
    Backend,
    EngineConfig,
    InputError,
    Noise,
    Plan,
    Read,
    Reader,
    Reading,
    SamplingParams,
    Score,
    Scorer,
    ScoringParams,
    Selector,
    TokenSequence,
    UnmaskingPolicy,
    UnmaskingStep,
    catalog_of,
)
from dise_core.params.base import Params
from dise_core.plugins.catalog import Catalog
from dise_core.plugins.entry import Entry
from dise_core.scoring.sequence_scorer import WholeResponse
from dise_core.testing import ToyPredictor
from dise_core.testing.toy_model import naive_readout
from dise_strategies.lengths.fixed import FixedLength
from tests import published


class Backwards(UnmaskingPolicy):
    """Writes from the last token to the first."""

    def choose(self, step: UnmaskingStep) -> np.ndarray:
        return np.arange(len(step.positions))[-step.quota :]


class Seven(Scorer):
    """Gives every text a 7 on which something is selected, for a pass."""

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        yield []
        return Score(7.0, np.flatnonzero(selector.select(sequence)))


class Written(Scorer):
    """Gives a text the places, from its end, in which a policy that it names would write it."""

    unmasking: str = "mine"
    _policy: UnmaskingPolicy = PrivateAttr()

    @model_validator(mode="after")
    def _name(self, info: ValidationInfo) -> Self:
        self._policy = catalog_of(info).unmasking_policy(self.unmasking)
        return self

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        yield []
        places = np.flatnonzero(selector.select(sequence))
        step = UnmaskingStep(places, np.zeros(len(places)), 1, 1.0, Noise(0), int(places[0]))
        return Score(float(self._policy.choose(step)[0]), places)


class Zeros(Reader):
    """Finds all tokens equally likely."""

    room = None
    abilities = frozenset()

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        return [naive_readout(np.zeros((len(read.positions), 65)), read) for read in reads]


class Level(Params):
    level: int = 1


class Engine(Backend[Checkpoint]):
    """An engine of one option, which it checks."""

    options = Level

    @classmethod
    def check(cls, config: EngineConfig) -> None:
        if config.own.get("level", 1) != 1:
            raise InputError("level is 1 here", "level")

    @classmethod
    def open(cls, checkpoint: Checkpoint, config: EngineConfig) -> Reader:
        return Zeros()


def catalog(**kinds: dict[str, type]) -> Catalog:
    """Return a catalog of these plugins alone, each kind by its plural."""
    return Catalog(
        {
            plural: {name: Entry(cls, "mine", "dist-mine") for name, cls in classes.items()}
            for plural, classes in kinds.items()
        }
    )


MINE = catalog(
    scorers={"naming": Written, "mine": Seven},
    selectors={"whole": WholeResponse},
    unmasking_policies={"mine": Backwards},
    length_controllers={"fixed": FixedLength},
    engines={"mine": Engine},
)


def value(scorer: str, settings: dict[str, Any]) -> float:
    """Return the score of a text in a catalog of two strategies of its own."""
    params = ScoringParams(scorer=scorer, scorer_settings=settings, selector="whole")
    engines = {"transformers": MINE.engines["mine"]}  # the default's name
    llm = LLM(ToyPredictor(), catalog=MINE.having(engines=engines))
    [answer] = llm.score([[1, 2]], [[3, 4, 5]], params)
    return answer.outputs[0].score.value


def test_a_strategy_that_another_names_is_of_the_catalog_that_made_it() -> None:
    assert value("naming", {"unmasking": "mine"}) == 2.0, "the last of three"
    with pytest.raises(InputError, match=r"unknown unmasking policy 'margin'.*Known: mine"):
        value("naming", {"unmasking": "margin"})


def test_what_a_catalog_made_is_equal_and_the_same_behind_a_pickle() -> None:
    made = MINE.scorer("naming", {"unmasking": "mine"})
    assert pickle.loads(pickle.dumps(made)) == made == MINE.scorer("naming", {"unmasking": "mine"})


def test_a_class_that_names_strategies_says_who_makes_it() -> None:
    with pytest.raises(ValueError, match=r"is made by a catalog: Catalog\.scorer"):
        Written()


def test_a_format_is_found_checked_and_run_by_the_catalog_that_loads_it(tmp_path: Path) -> None:
    folder = str(published.A2D_QWEN2.write(tmp_path))
    mine = MINE.having(**catalog(mask_predictors={"mine": predictor_of(A2D_QWEN2)}).entries)
    options: dict[str, Any] = {"catalog": mine, "engine": "mine"}
    params = SamplingParams(
        max_tokens=3, scorer="mine", selector="whole", unmasking="mine", length="fixed"
    )
    with LLM(folder, **options) as llm:
        [answer] = llm.generate([[1, 2]], params)
    assert answer.outputs[0].score.value == 7.0
    with pytest.raises(InputError, match="level is 1 here"):
        LLM(folder, **options, level=2)
    with pytest.raises(InputError, match=r"unknown engine 'transformers'.*Known: mine"):
        LLM(folder, catalog=mine)
