"""GET /v1/strategies: every strategy with its settings, plugins included, as a form can be built of
it.
"""

from __future__ import annotations

import enum
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import httpx
import numpy as np
import pytest
from pydantic import Field
from pydantic_core import to_jsonable_python

from dise_app.server.limits import Limits
from dise_app.settings import settings_of
from dise_core import AsyncLLM, Plan, Score, Scorer, Selector, TokenSequence, UnknownNameError
from dise_core.params.requests import SamplingParams, ScoringParams
from dise_core.plugins.discovery import installed_catalog
from dise_core.plugins.kinds import STRATEGIES
from dise_core.scoring.strategy import Strategy
from dise_core.testing import ToyPredictor
from tests.app.serving import Serve
from tests.guests import with_guests

FIELDS = {kind.option: kind.plural for kind in STRATEGIES}


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Anything:
    pass


class Odd(Scorer):
    """A scorer with settings of every kind.

    Its second paragraph.
    """

    whole: int = Field(gt=2, lt=9)
    """A whole number."""
    bound: float | None = Field(default=None, ge=0.5, lt=2)
    mode: Literal["a", "b"] = "b"
    colour: Colour = Colour.RED
    on: bool = True
    name: str = "x"
    parts: tuple[int, ...] = (1, 2)
    either: int | str = 3
    endless: float = math.inf
    thing: Anything = Anything()
    call: Callable[[], int] = len  # type: ignore[assignment]

    model_config = Strategy.model_config | {"arbitrary_types_allowed": True}

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        yield []
        return Score(0.0, np.arange(0))


class Broken(Odd):
    @classmethod
    def __get_pydantic_json_schema__(cls, *_: object) -> Any:
        raise RuntimeError("no schema here")


class Untold(Scorer):
    @property
    def needs_masks(self) -> bool:  # type: ignore[override]
        raise ZeroDivisionError("no answer")

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        yield []
        return Score(0.0, np.arange(0))


@pytest.fixture(scope="module")
def url(served: Serve) -> str:
    scorers = {"odd": Odd, "broken": Broken, "untold": Untold}
    catalog = with_guests(scorers=scorers)
    limits = Limits(max_tokens_limit=77, grace=1, default={"steps": 9})
    return served(AsyncLLM(ToyPredictor(), catalog=catalog), limits)


@pytest.fixture(scope="module")
def listed(url: str) -> Any:
    return httpx.get(f"{url}/v1/strategies").raise_for_status().json()


def settings(listed: Any, option: str, name: str) -> dict[str, Any]:
    [entry] = [e for e in listed["data"] if (e["option"], e["name"]) == (option, name)]
    return {setting["name"]: setting for setting in entry["settings"]}


def test_every_built_in_setting_is_told_with_its_default_and_description(listed: Any) -> None:
    own = installed_catalog()
    for option, plural in FIELDS.items():
        for name, entry in getattr(own, plural).items():
            if not entry.is_built_in:  # of another test, by its place
                continue
            told = settings(listed, option, name)
            fields = entry.load().model_fields
            defaults = {
                key: field.get_default(call_default_factory=True, validated_data={})
                for key, field in fields.items()
            }
            required = {key for key, field in fields.items() if field.is_required()}
            assert {key for key, setting in told.items() if setting["required"]} == required
            for key in defaults.keys() - required:
                assert told[key]["default"] == to_jsonable_python(defaults[key]), (name, key)
            assert all(setting["description"] for setting in told.values()), name
    assert len(listed["data"]) == sum(len(getattr(own, each)) for each in FIELDS.values()) + 3
    threshold = settings(listed, "reviser", "remask")["threshold"]
    assert (threshold["type"], threshold["default"], threshold["maximum"]) == ("number", 0.9, 1)


def test_a_plugins_settings_are_told_whatever_their_types(listed: Any) -> None:
    told = settings(listed, "scorer", "odd")
    shown = {
        name: {k: v for k, v in its.items() if k not in {"name", "description"}}
        for name, its in told.items()
    }
    plain = {"nullable": False, "required": False}
    assert shown == {
        "whole": {"type": "integer", "nullable": False, "required": True, "default": None,
                  "minimum": 3, "maximum": 8},
        "bound": {"type": "number", "nullable": True, "required": False, "default": None,
                  "minimum": 0.5, "exclusiveMaximum": 2},
        "mode": {"type": "string", **plain, "default": "b", "enum": ["a", "b"]},
        "colour": {"type": "string", **plain, "default": "red", "enum": ["red", "blue"]},
        "on": {"type": "boolean", **plain, "default": True},
        "name": {"type": "string", **plain, "default": "x"},
        "parts": {"type": "json", **plain, "default": [1, 2]},
        "either": {"type": "json", **plain, "default": 3},
        "endless": {"type": "number", **plain, "default": None},
    }  # fmt: skip
    assert told["whole"]["description"] == "A whole number."
    [odd] = [entry for entry in listed["data"] if entry["name"] == "odd"]
    assert (odd["plugin"], odd["is_built_in"], odd["problem"]) == ("guest", False, None)
    assert odd["about"] == "A scorer with settings of every kind.\n\nIts second paragraph."


def test_what_cannot_be_used_says_why(listed: Any) -> None:
    problems = {e["name"]: e["problem"] for e in listed["data"] if e["problem"] is not None}
    assert set(problems) == {"broken", "ar-perplexity", "loo", "untold"}
    assert problems["untold"].startswith("plugin 'guest': scorer 'untold' does not tell what it")
    assert "needs an auto-regressive judge" in problems["ar-perplexity"]
    assert "'toy' was trained on masks" in problems["loo"]
    assert problems["broken"].endswith("RuntimeError: no schema here")


@pytest.mark.parametrize("option", FIELDS)
@pytest.mark.parametrize("value", ["untouched:X", {"class": "untouched:X", "settings": {}}])
def test_a_request_names_no_module_and_imports_none(
    url: str, option: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "untouched.py").write_text("X = 1")
    monkeypatch.syspath_prepend(tmp_path)
    body = {"model": "toy", "prompt": "ab", "max_tokens": 4, "dise": {option: value}}
    answer = httpx.post(f"{url}/v1/completions", json=body)
    assert answer.status_code == 400, answer.text
    expected = "unknown" if isinstance(value, str) else "Input should be a valid string"
    assert expected in answer.json()["error"]["message"]
    with pytest.raises(UnknownNameError):  # as a calibration's name is looked up
        installed_catalog().scorer("untouched:X")
    assert "untouched" not in sys.modules


def test_a_request_may_say_every_default(url: str, listed: Any) -> None:
    for entry in listed["data"]:
        if entry["option"] != "scorer" or entry["problem"] or entry["name"] == "odd":
            continue
        told = {its["name"]: its["default"] for its in entry["settings"]}
        scored = {"scorer": entry["name"], "scorer_settings": told}
        body = {"model": "toy", "prompt": "ab", "max_tokens": 4, "dise": scored}
        asked = httpx.post(f"{url}/v1/completions", json=body)
        assert asked.status_code == 200, asked.text


def test_the_options_are_those_of_a_completion_within_the_servers_limits(listed: Any) -> None:
    told = {option["name"]: option for option in listed["options"]}
    others = {f"{option}_settings" for option in FIELDS} | {"logprobs", "cache_salt"}
    assert set(told) == set(SamplingParams.model_fields) - others
    assert all(option["description"] for option in told.values())
    assert (told["max_tokens"]["maximum"], told["n"]["maximum"]) == (77, 64)
    assert (told["steps"]["default"], told["top_p"]["default"]) == (9, 1.0)
    assert told["temperature"]["in"] == "request"
    assert told["block_length"]["in"] == "dise"
    assert {name for name, option in told.items() if option["scores"]} == (
        set(ScoringParams.model_fields) - others
    )
    assert listed["model"] == {
        "name": "toy", "max_length": 40, "block_length": None, "has_chat_template": False,
        "judge": None, "calibration": None,
    }  # fmt: skip


def test_the_settings_of_a_model_without_fields_are_none() -> None:
    assert settings_of(installed_catalog().scorers["dise"].load()) == []
