"""The kit of engines passes a right one, and names the promise that another breaks."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import Field

from dise_adapters import Checkpoint, load_reader
from dise_core import (
    LLM,
    Backend,
    CacheRoom,
    EngineConfig,
    InputError,
    Params,
    Read,
    Reader,
    Reading,
    ScoringParams,
)
from dise_core.front import llm
from dise_core.plugins.discovery import installed_catalog, with_plugins
from dise_core.testing import ToyPredictor, check_engine
from tests.pages import ROOT, titled


class Options(Params):
    most: int = Field(default=4, ge=1, le=64)


class Few:
    """A reader of few reads at a time."""

    def __init__(self, reader: Reader, most: int) -> None:
        self._reader, self._most = reader, most
        self.abilities = reader.abilities

    @property
    def room(self) -> CacheRoom | None:
        return self._reader.room

    def read(self, reads: Sequence[Read]) -> Sequence[Reading]:
        starts = range(0, len(reads), self._most)
        parts = (self._reader.read(reads[start : start + self._most]) for start in starts)
        return [reading for part in parts for reading in part]


class FewAtATime(Backend[Checkpoint]):
    options = Options

    @classmethod
    def open(cls, checkpoint: Checkpoint, config: EngineConfig) -> Reader:
        own = cls.options_of(config)
        assert isinstance(own, Options)
        inner = config.model_copy(update={"engine": "transformers"})
        return Few(load_reader(checkpoint, inner), own.most)


def test_the_engine_of_the_docs_scores_alike_and_says_what_shadows_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = titled((ROOT / "docs/plugins.md").read_text())["dise_few.py"]
    (tmp_path / "dise_few.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    few = LLM("countdown", plugins=[import_module("dise_few")], engine="few", most=1)
    asked = ["83,18,75 -> 10"] * 2, ["18+75=93", "18+75=92"]
    plain = LLM("countdown").score(*asked)
    for answer, expected in zip(few.score(*asked), plain, strict=True):
        assert answer.outputs[0].score.value == pytest.approx(expected.outputs[0].score.value)
    with pytest.raises(InputError, match=r"shadows of its tokens \(shadow\) .*: they need a mask"):
        few.score(*asked, ScoringParams(scorer="shadow"))


KEPT: list[Reader] = []


class Keeping(FewAtATime):
    @classmethod
    def open(cls, checkpoint: Checkpoint, config: EngineConfig) -> Reader:
        KEPT.append(super().open(checkpoint, config))
        return KEPT[-1]


class Untyped(FewAtATime):
    class options(Params):  # noqa: N801
        most: Any = 4


class Unchecked(FewAtATime):
    @classmethod
    def check(cls, config: EngineConfig) -> None:
        """Take whatever is given."""


class Required(FewAtATime):
    class options(Params):  # noqa: N801
        most: int


class Shadowing(FewAtATime):
    class options(Params):  # noqa: N801
        device: str = "cpu"


class Unordered(FewAtATime):
    @classmethod
    def open(cls, checkpoint: Checkpoint, config: EngineConfig) -> Reader:
        class Backwards(Few):
            def read(self, reads: Sequence[Read]) -> Sequence[Reading]:
                return super().read(reads)[::-1]

        inner = config.model_copy(update={"engine": "transformers"})
        return Backwards(load_reader(checkpoint, inner), 4)


def test_an_engine_that_keeps_its_promises_conforms() -> None:
    check_engine(FewAtATime, "countdown", Options(most=3))


@pytest.mark.parametrize(
    ("engine", "promise"),
    [
        (Keeping, "a closed model must be freed"),
        (Untyped, "a wrong value of the option 'most' must be refused"),
        (Unchecked, "a wrong value of the option 'most' must be refused"),
        (Required, "the option 'most' must have a default"),
        (Shadowing, "the option 'device' is one of EngineConfig's"),
        (Unordered, "read must answer in the order of the reads"),
    ],
)
def test_a_wrong_engine_is_told_which_promise_it_breaks(
    engine: type[Backend[Any]], promise: str
) -> None:
    with pytest.raises(AssertionError, match=promise):
        check_engine(engine, "countdown")
    KEPT.clear()


def test_an_unopened_model_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    class Toy(ToyPredictor):
        heeds: ClassVar[frozenset[str] | None] = None  # says so, and opens no engine

        @classmethod
        def claims(cls, model: str, revision: str | None = None) -> bool:
            return model == "toy"

        @classmethod
        def load(cls, model: str, config: EngineConfig) -> Toy:
            return cls()

    catalog = with_plugins(installed_catalog(), [Toy])
    monkeypatch.setattr(llm, "installed_catalog", lambda: catalog)
    with pytest.raises(AssertionError, match="must open the model 'toy', and does not"):
        check_engine(FewAtATime, "toy")
