"""Every option of params.py is at every door, or stands in the list of those left out with its
reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import typer

from dise_app.cli.verbs import app
from dise_app.doors import LEFT_OUT
from dise_app.harness.model import DiseLM
from dise_app.server.decisions import DecisionRequest, SystemOneRequest
from dise_app.server.response_schemas import ResponseRequest
from dise_app.server.schemas import ChatRequest, CompletionRequest, RankRequest, ScoreRequest
from dise_core.params import (
    DecisionParams,
    EngineConfig,
    Params,
    SamplingParams,
    Scoring,
    ScoringParams,
)

GENERATE: tuple[type[Params], ...] = (SamplingParams, EngineConfig)
SCORE: tuple[type[Params], ...] = (ScoringParams, EngineConfig)

EXPECTED: Mapping[str, tuple[type[Params], ...]] = {
    "dise generate": GENERATE,
    "dise score": SCORE,
    "dise rank": SCORE,
    "dise decide": (DecisionParams, EngineConfig),
    "dise serve": (EngineConfig,),
    "dise eval given": (Scoring, EngineConfig),
    "dise eval likelihood": (Scoring, EngineConfig),
    "POST /v1/completions": (SamplingParams,),
    "POST /v1/chat/completions": (SamplingParams,),
    "POST /v1/responses": (SamplingParams,),
    "POST /v1/score": (ScoringParams,),
    "POST /v1/rank": (ScoringParams,),
    "POST /v1/decisions": (DecisionParams,),
    "POST /v1/systemone": (DecisionParams,),
}
"""What a door must have where it is not all that writes and scores an answer."""


def expected(door: str) -> set[str]:
    return {name for params in EXPECTED.get(door, GENERATE) for name in params.model_fields} - set(
        LEFT_OUT[door]
    )


def commands() -> dict[str, Any]:
    """The verbs by their whole names."""
    root: Any = typer.main.get_command(app)
    found = {}
    for name, command in root.commands.items():
        nested = getattr(command, "commands", None)
        found |= (
            {f"dise {name} {n}": c for n, c in nested.items()}
            if nested
            else {f"dise {name}": command}
        )
    return found


def flags(command: Any) -> set[str]:
    return {flag for parameter in command.params for flag in parameter.opts}


@pytest.mark.parametrize("door", [door for door in LEFT_OUT if door.startswith("dise ")])
def test_a_verb_has_every_option_under_its_own_name(door: str) -> None:
    given = flags(commands()[door])
    asked = {
        "--" + name.replace("_settings", "_setting").replace("_", "-") for name in expected(door)
    }
    assert asked <= given
    left_out = {
        "--" + name.replace("_settings", "_setting").replace("_", "-") for name in LEFT_OUT[door]
    }
    assert not left_out & given, "what is left out is not there after all"


def test_every_verb_that_loads_a_model_is_a_door() -> None:
    assert {name for name, command in commands().items() if "--model" in flags(command)} == {
        door for door in LEFT_OUT if door.startswith("dise ")
    }


@pytest.mark.parametrize(
    ("door", "request_body"),
    [
        ("POST /v1/completions", CompletionRequest),
        ("POST /v1/chat/completions", ChatRequest),
        ("POST /v1/responses", ResponseRequest),
        ("POST /v1/score", ScoreRequest),
        ("POST /v1/rank", RankRequest),
        ("POST /v1/decisions", DecisionRequest),
        ("POST /v1/systemone", SystemOneRequest),
    ],
)
def test_a_route_takes_every_option(door: str, request_body: Any) -> None:
    schema = request_body.model_json_schema()
    fields = set(schema["properties"])
    for ours in ("Extensions", "DecisionParams"):
        fields |= set(schema.get("$defs", {}).get(ours, {}).get("properties", {}))
    assert expected(door) <= fields


def test_the_harness_takes_every_option() -> None:
    values = {}
    for name in expected("dise-lm-eval") - {"engine", "steps"}:
        params = SamplingParams if name in SamplingParams.model_fields else EngineConfig
        values[name] = params.model_fields[name].get_default(call_default_factory=True)
    device = values.pop("device")
    assert DiseLM("countdown", device=device, is_check_greedy=False, **values).rank == 0


def test_reasons_name_options_that_there_are() -> None:
    known = {*SamplingParams.model_fields, *EngineConfig.model_fields}
    for reasons in LEFT_OUT.values():
        assert set(reasons) <= known
        assert all(reasons.values())


@pytest.mark.parametrize("params", [SamplingParams, ScoringParams, DecisionParams, EngineConfig])
def test_every_option_is_described(params: type[Params]) -> None:
    assert all(field.description for field in params.model_fields.values())
