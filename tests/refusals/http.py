"""HTTP: a body that is refused gets 400, or 404 for a name that is not here, and an error of four
fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from tests.refusals.table import Refusal, Refuse, Row, Table

PROBLEM = "8,3,5 -> 10"
USER = {"role": "user", "content": PROBLEM}
DISE = {"block_length": 8}
BASES: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": [USER], "max_tokens": 8, "dise": DISE},
    "completions": {"prompt": PROBLEM, "max_tokens": 8, "dise": DISE},
    "responses": {"input": PROBLEM, "max_output_tokens": 8, "dise": DISE},
    "score": {"prompt": PROBLEM, "response": "8-3+5=10"},
    "rank": {"prompt": PROBLEM, "candidates": ["8-3+5=10", "1"]},
}
CHAT, TEXT, NEWER, SCORE, RANK = BASES
WRITING = (CHAT, TEXT, NEWER)

QUESTION = {"type": "predicate", "name": "spam", "instructions": "Is it spam?"}
OTHERS: dict[str, dict[str, Any]] = {
    "decisions": {"input": "a", "questions": [QUESTION]},
    "../tokenize": {},
    "../detokenize": {},
}


def chosen(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def choice(*values: object) -> dict[str, object]:
    options = [{"value": value} for value in values]
    return {"questions": [{"type": "choice", "instructions": "Q", "choices": options}]}


ORDER = "writes in no fixed order"
CALL = {
    "role": "assistant",
    "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{"}}],
}
IN_CALL = "messages.1.tool_calls.0.function"
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
HELD = "held to a JSON schema, a regular expression or a list of texts"
THIRTY = [{"type": "predicate", "instructions": f"{n}"} for n in range(30)]
IMAGE = {"type": "input_image", "image_url": "x"}

FIELDS: list[Row] = [
    ((CHAT, {"response_format": {"type": "json_object"}}), "response_format=the constraint",
     "cannot spell"),
    ((CHAT, {"response_format": {"type": "json_schema"}}), "response_format", "go with type"),
    ((CHAT, {"guided_choice": []}), "structured_outputs=choices=[]", "at least 1 item"),
    ((CHAT, {"guided_regex": "("}), "structured_outputs=the expression '('", "cannot be used"),
    ((CHAT, {"guided_grammar": "a"}), "guided_grammar", HELD),
    ((CHAT, {"guided_regex": "1", "guided_json": {}}), "structured_outputs", "exactly one"),
    ((TEXT, {"guided_regex": "1", "dise": {"constraint": "regex"}}), "structured_outputs",
     "give one"),
    ((TEXT, {"structured_outputs": {"grammar": "a"}}), "structured_outputs.grammar", HELD),
    ((TEXT, {"guided_regex": "1", "structured_outputs": 1}), "structured_outputs", "say the same"),
    ((TEXT, {"structured_outputs": {}}), "structured_outputs", "exactly one of json, regex"),
    ((TEXT, {"structured_outputs": {"regex": "1{99}"}}), "max_tokens=8 tokens",
     "the shortest needs"),
    ((NEWER, {"structured_outputs": {"json": {"not": {}}}}), "structured_outputs=schema",
     "/not = {}"),
    ((NEWER, {"text": {"format": {"type": "x"}}}), "text.format.type", "Input should be"),
    ((CHAT, {"tools": [{"type": "function"}]}), "tools.0.function", "Field required"),
    ((CHAT, {"tools": [TOOL]}), "tool_choice", "set tool_choice to 'required'"),
    ((CHAT, {"tools": [TOOL], "tool_choice": chosen("g")}), "tool_choice", "tools do not hold"),
    ((CHAT, {"tool_choice": "required"}), "tool_choice", "tools do not hold"),
    ((CHAT, {"tool_choice": "maybe"}), "tool_choice", "'none', 'auto' or 'required'"),
    ((CHAT, {"tools": [TOOL], "tool_choice": "required"}), "tools=the constraint", "cannot spell"),
    ((CHAT, {"tools": [TOOL], "tool_choice": chosen("f"), "guided_regex": "1"}), "tools",
     "tools and structured_outputs each say"),
    ((NEWER, {"tools": [{"type": "web_search"}]}), "tools", "only POST /v1/chat/completions"),
    ((CHAT, {"frequency_penalty": 0.5}), "frequency_penalty", ORDER),
    ((CHAT, {"min_p": 0.1}), "min_p", "temperature, top_p and top_k"),
    ((CHAT, {"ignore_eos": True}), "ignore_eos", "ends with the model's end token"),
    ((NEWER, {"previous_response_id": "resp_1"}), "previous_response_id", "send all of it"),
    ((NEWER, {"input": [{"type": "reasoning", "summary": []}]}), "input.0.type", "'message'"),
    ((CHAT, {"logit_bias": {"x": 1}}), "logit_bias.x", "should be a valid integer"),
    ((CHAT, {"logit_bias": {"3": 101}}), "logit_bias.3", "less than or equal to 100"),
    ((CHAT, {"logit_bias": {"99": 1}}), "logit_bias", "token id 99 at position 0 is outside"),
    ((CHAT, {"allowed_token_ids": [99]}), "allowed_token_ids", "token id 99"),
    ((CHAT, {"top_k": -2}), "top_k", "greater than or equal to 0"),
    ((CHAT, {"max_tokens": 65}), "max_tokens", "above the server's 64"),
    ((RANK, {"candidates": []}), "candidates", "at least 1 item"),
    ((CHAT, {"n": 2}), "temperature", "would all be the same"),
    ((CHAT, {"messages": None}), "messages", "Field required"),
    ((CHAT, {"messages": [{"content": "x"}]}), "messages.0.role", "Field required"),
    ((CHAT, {"messages": [{**USER, "content": 3}]}), "messages.0.content", "valid string"),
    ((CHAT, {"messages": [{**USER, "content": [{"type": "image_url", "image_url": "x"}]}]}),
     "messages.0.content.0.type", "DiSE reads text alone: leave out parts"),
    ((CHAT, {"messages": [{**USER, "content": [{"type": "input_text", "text": "x"}]}]}),
     "messages.0.content.0.type", "Input should be 'text'"),
    ((NEWER, {"input": [{"role": "user", "content": [IMAGE]}]}),
     "input.0.content.0.type", "DiSE reads text alone: leave out parts"),
    ((CHAT, {"messages": [{**USER, "tool_calls": [{"id": "x"}]}]}),
     "messages.0.tool_calls.0.function", "Field required"),
    ((CHAT, {"messages": [USER, CALL]}), f"{IN_CALL}.arguments", "Invalid JSON"),
    ((CHAT, {"prompt": "x"}), "prompt", "only POST /v1/completions takes a prompt"),
    ((CHAT, {"colour": "red"}), "colour", "there is no setting 'colour'"),
    ((CHAT, {"dise": {"early_exit": 0.9}}), "dise.early_exit", "take length='until-end', which"),
    ((CHAT, {"dise": {"scorers": "mc"}}), "dise.scorers", "Did you mean 'scorer'?"),
    ((CHAT, {"dise": {"scorer": "disco"}}), "scorer", "unknown scorer 'disco'"),
    ((TEXT, {"max_tokens": 0}), "max_tokens, echo", "with echo it scores the prompt"),
    ((TEXT, {"echo": True, "stream": True}), "echo, stream", "echo does not stream"),
    ((TEXT, {"echo": True, "max_tokens": 0, "n": 2}), "max_tokens, n",
     "one choice for each prompt"),
    ((TEXT, {"echo": True, "prompt": "<|mdm_mask|>1"}), "prompt=the text, mask",
     "mask token <|mdm_mask|> at position 0"),
    ((CHAT, {"suffix": "x"}), "suffix", "suffix is not supported"),
    ((TEXT, {"suffix": "x", "echo": True}), "echo, suffix",
     "a suffix follows it; leave one of the two out"),
    ((TEXT, {"suffix": "x", "prompt": "1"}), "suffix='x', vocabulary", "vocabulary has no 'x'"),
    ((TEXT, {"suffix": "1", "dise": {"length": "daedal"}}), "length", "'daedal' fills no gap"),
    ((TEXT, {"prompt": {"text": "a secret"}}), "prompt", "valid string"),
    ((TEXT, {"add_special_tokens": True}), "add_special_tokens", "as they are given"),
    ((CHAT, {"n": 2, "best_of": 1}), "best_of, n", "best_of=1 is less than n=2"),
    ((CHAT, {"messages": [{"role": "system", "content": "x"}]}), "messages=the conversation",
     "template refuses"),
    ((CHAT, {"messages": [{"role": "user", "content": "h"}]}), "messages='h', vocabulary",
     "vocabulary has no 'h'"),
    ((CHAT, {"stream": True, "dise": {"scorer": "x"}}), "scorer", "unknown scorer"),
    ((TEXT, {"prompt": "1" * 510}), "prompt, max_tokens", "longer than the model's limit of 512"),
    ((TEXT, {"prompt": [[1], [2]], "stream": True}), "stream", "stream takes one prompt"),
    ((TEXT, {"prompt": [9999]}), "token_ids", "token id 9999 at position 0 is outside"),
    ((TEXT, {"prompt": [PROBLEM, ""]}), "prompt", "prompt 2: the prompt is empty"),
    ((TEXT, {"prompt": [[1]] * 257}), "body, prompt", "1 to 256 prompts, not 257"),
    ((SCORE, {"response": ["1", ""]}), "response", "text 2: the response is empty"),
    ((SCORE, {"scorer": "ar-perplexity"}), "judge", "needs an auto-regressive"),
    ((SCORE, {"scorer": "mc", "scorer_settings": {"num_samples": 10**9}}), "num_samples",
     "1000000"),
    ((CHAT, {"dise": {"unmasking": "lowest"}}), "unmasking", "unknown unmasking policy 'lowest'"),
    *(((path, {"rid": "a b"}), "rid", "") for path in WRITING),
    ((TEXT, {"nvext": {"greed_sampling": True}}), "nvext.greed_sampling", ""),
    *(((path, {"cache_salt": salt}), "cache_salt", "")
      for path in WRITING for salt in ("", "x" * 1001, 7)),
    ((SCORE, {"scorer": "written"}), "scorer=written", "written reads how a text was written"),
    ((RANK, {"scorer": "written"}), "scorer=written", "written reads how a text was written"),
]  # fmt: skip

DECISIONS: list[Row] = [
    (("decisions", {"model": "other"}), "model", "no model 'other' here"),
    (("decisions", {"more": 1}), "more", "there is no setting"),
    (("decisions", {"dise": {"joined": True}}), "dise.joined", "Did you mean 'joint'"),
    (("decisions", {"dise": {"orders": 1}}), "dise.orders", "'orders' was taken out: options are"),
    (("decisions", {"dise": {"reading": "each-negated"}}), "dise.reading",
     "reading 'each-negated' was taken out: use \"each\""),
    (("decisions", {"questions": []}), "questions", "at least 1 item"),
    (("decisions", {"questions": [{"type": "box", "instructions": "Q"}]}), "questions.0", "'box'"),
    (("decisions", choice("a")), "questions.0.choice.choices", "at least 2 items"),
    (("decisions", choice(*map(str, range(300)))), "questions.0.choice.choices",
     "at most 255 items"),
    (("decisions", choice("true", True)), "questions", "the same tokens"),
    (("decisions", choice("a", "\u00e9")), "questions=é", "vocabulary has not all"),
    (("decisions", {"questions": [QUESTION] * 2}), "questions", "the name 'spam'"),
    (("decisions", {"input": " "}), "input", "the input is empty"),
    (("decisions", {"input": "a" * 2000}), "questions", "limit of 1000"),
    (("decisions", {"input": [{"role": "robot", "content": "a"}]}), "input.0.role", "'user'"),
    (("decisions", {"input": [{"role": "user", "content": [IMAGE]}]}), "input.0.content.0",
     "input_image"),
    (("decisions", {"questions": [QUESTION | {"instructions": [{"type": "input_image"}]}]}),
     "questions.0", "instructions are a text, or parts"),
    (("decisions", {"questions": THIRTY}), "passes", "more than the 20 forward passes"),
    (("../tokenize", {}), "prompt, messages", "give either a prompt or messages"),
    (("../tokenize", {"prompt": "a", "model": "b"}), "model", "no model 'b' here"),
    (("../detokenize", {"tokens": [1, 130]}), "tokens", "token id 130 at position 1 is outside"),
]  # fmt: skip

UNTEMPLATED: list[Row] = [
    ((path, {"dise": {}}), "messages=chat template",
     "model 'toy' has no chat template; give the prompt as one text, to POST /v1/completions")
    for path in (CHAT, NEWER)
]  # fmt: skip


def posting(server: str, bases: Mapping[str, dict[str, Any]]) -> Refuse:
    """Return what posts a body to a server, a fixture. bases: what each path is sent beside it."""

    def refuse(given: tuple[str, dict[str, Any]], request: pytest.FixtureRequest) -> Refusal:
        path, more = given
        url = f"{request.getfixturevalue(server)}/v1/{path}"
        answer = httpx.post(url, json={**bases[path], **more}, timeout=60)
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        kinds = {400: "invalid_request_error", 404: "not_found_error"}
        assert error["type"] == kinds[404 if error["param"] == "model" else 400]
        assert kinds[answer.status_code] == error["type"], answer.text
        return Refusal(error["message"], error["param"])

    return refuse


TABLES = [
    Table("HTTP", posting("countdown", BASES), FIELDS),
    Table("HTTP", posting("letters", OTHERS), DECISIONS),
    Table("HTTP", posting("toy", BASES), UNTEMPLATED),
]
