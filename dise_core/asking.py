"""What the entry points take, and the plans of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from dise_core.decisions import DecisionOutput
from dise_core.errors import InputError
from dise_core.given import check_list, is_one, params_of
from dise_core.outputs import RequestOutput
from dise_core.params import DecisionParams, SamplingParams, ScoringParams
from dise_core.planner import Planner
from dise_core.prompts import Message, Prompt
from dise_core.questions import Question, check_questions
from dise_core.reading import Plan, numbered

Texts = Sequence[Prompt]
TextLists = Sequence[Texts]
Choices = Texts | TextLists
Given = Prompt | Texts
"""One prompt, or several."""

Sampling = SamplingParams | Sequence[SamplingParams] | None
"""Settings for all prompts, or one for each; None for the defaults."""

Scoring = ScoringParams | None
Deciding = DecisionParams | None
Asked = str | Sequence[Message]
"""What questions are about: a text or a conversation."""

AskedMany = Sequence[Asked]
Inputs = Asked | AskedMany

Questions = Sequence[Question]
Chat = bool | None
"""Whether a text goes through the model's chat template; None: if the model has one."""


def request_plan(
    planner: Planner, prompt: Prompt | Sequence[Message], params: SamplingParams | None, chat: Chat
) -> Plan[RequestOutput]:
    """Return the plan of a prompt, or of a conversation if `prompt` is a list of messages."""
    its = params_of(params, SamplingParams)
    if not isinstance(prompt, str):
        check_list(prompt, "prompt", "a text, token ids or a conversation")
        if any(isinstance(item, Mapping) for item in prompt):
            return planner.chat(cast("Sequence[Message]", prompt), its)
    return planner.generate(cast("Prompt", prompt), its, chat)


def one_of_both(params: Sampling, sampling_params: Sampling) -> Sampling:
    """Return the params, which vLLM calls sampling_params. Raises InputError for both."""
    if params is not None and sampling_params is not None:
        raise InputError(
            "params and sampling_params are two names for one argument; give one of them",
            "sampling_params",
        )
    return params if sampling_params is None else sampling_params


def rankings(
    planner: Planner, prompts: Given, candidates: Choices, params: Scoring, chat: Chat
) -> list[Plan[RequestOutput]]:
    """Return the plans that rank one prompt's candidates, or each prompt's own.

    Raises InputError if prompts and lists of candidates do not pair up.
    """
    if not is_one(prompts):
        check_list(candidates, "candidates", "a list of candidates for each prompt")
    many = cast("Sequence[Prompt]", [prompts] if is_one(prompts) else prompts)
    lists = cast("Sequence[Sequence[Prompt]]", [candidates] if is_one(prompts) else candidates)
    if len(many) != len(lists):
        raise InputError(
            f"{len(many)} prompts do not pair up with {len(lists)} lists of candidates",
            "candidates",
        )
    pairs = zip(many, lists, strict=True)
    scoring = params_of(params, ScoringParams)
    plans = [planner.rank(prompt, its, scoring, chat) for prompt, its in pairs]
    return numbered(plans, "prompt")


def is_one_input(given: object) -> bool:
    """Return whether it is one text or one conversation rather than a list of them."""
    if isinstance(given, str):
        return True
    check_list(given, "input", "a text, a conversation or a list of either")
    items = list(cast(Sequence[object], given))
    return len(items) > 0 and all(isinstance(item, Mapping) for item in items)


def decisions(
    planner: Planner, given: Inputs, questions: Questions, params: Deciding, chat: Chat
) -> list[Plan[DecisionOutput]]:
    """Return the plans that answer the questions about one input, or about each of several."""
    many = cast("AskedMany", [given] if is_one_input(given) else given)
    if len(many) == 0:
        raise InputError("no input given", "input")
    asked, its = check_questions(questions), params_of(params, DecisionParams)
    return numbered([planner.decide(each, asked, its, chat) for each in many], "input")
