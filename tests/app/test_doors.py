"""Every option of params/ is at every door, or stands in the list of those left out with its
reason, or its mark says that it is a key of --model-args, or none of the command.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import httpx
import pytest
import typer

from dise import LLM
from dise_adapters.vllm.options import VllmOptions
from dise_app.cli.options import ENGINE
from dise_app.cli.verbs import app
from dise_app.server.schemas.requests import (
    ChatRequest,
    CompletionRequest,
    RankRequest,
    ScoreRequest,
)
from dise_app.server.schemas.responses import ResponseRequest
from dise_core import AsyncLLM
from dise_core.params.base import Params
from dise_core.params.engine import EngineConfig
from dise_core.params.marks import Mark, marked
from dise_core.params.requests import Ending, SamplingParams, Scoring, ScoringParams
from dise_core.records import Record
from dise_core.struck import MODEL_ARGS
from dise_decide.params import DecisionParams
from dise_decide.routes import DecisionRequest
from dise_eval.harness.model import DiseLM
from tests.app.serving import serving
from tests.commands import Dise

GENERATE: tuple[type[Params], ...] = (SamplingParams, EngineConfig, VllmOptions)
SCORE: tuple[type[Params], ...] = (ScoringParams, Ending, EngineConfig, VllmOptions)

EXPECTED: Mapping[str, tuple[type[Params], ...]] = {
    "dise generate": GENERATE,
    "dise score": SCORE,
    "dise rank": SCORE,
    "dise decide": (DecisionParams, EngineConfig, VllmOptions),
    "dise serve": (EngineConfig, VllmOptions),
    "dise eval compare": (EngineConfig, VllmOptions),
    "dise eval given": (Scoring, EngineConfig, VllmOptions),
    "dise eval likelihood": (Scoring, Ending, EngineConfig, VllmOptions),
    "POST /v1/completions": (SamplingParams,),
    "POST /v1/chat/completions": (SamplingParams,),
    "POST /v1/responses": (SamplingParams,),
    "POST /v1/score": (ScoringParams, Ending),
    "POST /v1/rank": (ScoringParams, Ending),
    "POST /v1/decisions": (DecisionParams,),
}
"""What a door must have where it is not all that writes and scores an answer."""


def commands() -> dict[str, Any]:
    """The verbs that load a model, by their whole names."""
    root: Any = typer.main.get_command(app)
    found = {}
    for name in root.list_commands(None):
        command = root.get_command(None, name)
        nested = getattr(command, "commands", None)
        found |= (
            {f"dise {name} {n}": c for n, c in nested.items()}
            if nested
            else {f"dise {name}": command}
        )
    return {name: command for name, command in found.items() if "--model" in flags(command)}


def flags(command: Any) -> set[str]:
    return {flag for parameter in command.params for flag in parameter.opts}


def left_out(door: Any) -> dict[str, str]:
    """The reasons of a verb's click command, or of the class of a route's requests."""
    return getattr(getattr(getattr(door, "callback", door), "__wrapped__", door), "left_out", {})


def expected(name: str, door: Any = None) -> set[str]:
    """The options that a door must have."""
    fields = {name for params in EXPECTED.get(name, GENERATE) for name in params.model_fields}
    return fields - left_out(door).keys()


def having(mark: Mark) -> set[str]:
    """The options with that mark."""
    return {n for params in (*GENERATE, Ending, DecisionParams) for n in marked(params, mark)}


def named(options: Iterable[str]) -> set[str]:
    """The flags of the options."""
    return {"--" + name.replace("_settings", "_setting").replace("_", "-") for name in options}


@pytest.mark.parametrize(("name", "command"), commands().items())
def test_a_verb_has_every_option_under_its_own_name(name: str, command: Any) -> None:
    args, hidden = having(Mark.MODEL_ARG), having(Mark.NOT_OF_THE_COMMAND)
    assert named(expected(name, command) - args - hidden) <= flags(command)
    assert not named({*left_out(command), *args, *hidden}) & flags(command), "is there after all"
    [about] = [p.help for p in command.params if p.name == "model_args"]
    assert about.endswith(f"Keys: {', '.join(sorted(args))}.")
    assert left_out(command).keys() <= {*SamplingParams.model_fields, *EngineConfig.model_fields}


@pytest.mark.parametrize("name", [*commands(), "dise calibrate"])
def test_the_help_of_a_verb_begins_with_what_is_most_used_and_ends_with_what_few_need(
    name: str, dise: Dise
) -> None:
    told = dise(*name.split()[1:], "--help", columns=80).out
    headings = [line for line in re.findall("^([A-Z].*):$", told, re.M) if line != "Arguments"]
    assert (headings[0], headings[-1]) == ("Most used", "What few need"), headings
    most_used = told.split("Most used:")[1].split(f"{headings[1]}:")[0]
    assert 4 <= len(re.findall("^  --", most_used, re.M)) <= 12


def test_what_was_declared_a_key_of_model_args_was_an_option_and_is_refused() -> None:
    assert having(Mark.MODEL_ARG) == {*MODEL_ARGS}


def test_model_args_are_read_as_the_options_that_they_are(dise: Dise) -> None:
    """JSON where it is none of a text; several in one, and of an object each by its name."""
    args = ENGINE().read(
        {"model_args": ["block_size=4,revision=0123", 'max_memory={"0": "1GiB", "cpu": "2GiB"}',
                        "vllm_options.seed=3,vllm_options.name=x", "judge_device=cpu"]},
        {"model_args"},
    )  # fmt: skip
    assert args == {
        "block_size": 4, "revision": "0123", "max_memory": {"0": "1GiB", "cpu": "2GiB"},
        "vllm_options": {"seed": 3, "name": "x"}, "judge_device": "cpu",
    }  # fmt: skip


def test_the_verbs_of_experiments_leave_something_out() -> None:
    assert {name.split()[1] for name, command in commands().items() if left_out(command)} == {
        "eval"
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
    ],
)
def test_a_route_takes_every_option(door: str, request_body: Any) -> None:
    schema = request_body.model_json_schema()
    fields = set(schema["properties"])
    for ours in ("Extensions", "DecisionParams"):
        fields |= set(schema.get("$defs", {}).get(ours, {}).get("properties", {}))
    assert expected(door, request_body) <= fields


def test_the_harness_takes_every_option() -> None:
    values = {}
    for name in expected("dise-lm-eval") - {"engine", "steps"}:
        [params] = [params for params in GENERATE if name in params.model_fields]
        values[name] = params.model_fields[name].get_default(call_default_factory=True)
    device = values.pop("device")
    assert DiseLM("countdown", device=device, is_check_greedy=False, **values).rank == 0


def test_a_request_without_options_takes_as_many_passes_at_every_door(dise: Dise) -> None:
    """The page's fields are empty, and what is empty is no part of its requests."""
    prompt = "83,18,75 -> 10"
    asked: Mapping[str, Record] = {
        "/v1/chat/completions": {"messages": [{"role": "user", "content": prompt}]},
        "/v1/completions": {"prompt": f"<|user|>{prompt}<|assistant|>"},
        "/v1/responses": {"input": prompt},
    }
    with serving(AsyncLLM("countdown")) as url:
        answers = {path: httpx.post(f"{url}{path}", json=asked[path]).json() for path in asked}
    with LLM("countdown") as llm:
        [answer] = llm.generate(prompt)
    expected = SamplingParams()
    assert {
        "Python": answer.usage.nfe,
        "dise generate": json.loads(dise("generate", prompt, "--json").out)["usage"]["nfe"],
        **{path: answers[path]["dise"]["nfe"] for path in asked},
    } == dict.fromkeys(
        ("Python", "dise generate", *asked), expected.max_tokens // expected.tokens_per_step + 1
    )


@pytest.mark.parametrize(
    ("named", "model"), [((), "word-problems"), (("--model", "countdown"), "countdown")]
)
def test_the_environment_names_the_default_model(
    dise: Dise, monkeypatch: pytest.MonkeyPatch, named: tuple[str, ...], model: str
) -> None:
    monkeypatch.setenv("DISE_MODEL", "no-such-model" if named else "word-problems")
    short = ("--max-tokens", 4, "--block-length", 4)
    run = dise("generate", "1,2 -> 3", *short, "--json", *named)
    assert json.loads(run.out)["model"] == model
    assert "DISE_MODEL" in dise("serve", "--help").out
