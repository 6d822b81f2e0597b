"""Fields of OpenAI's and vLLM's APIs that nothing here stands behind: those that are taken with any
value, and those whose neutral value is taken, since it asks for nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import JsonValue
from pydantic_core import PydanticCustomError

from dise_core.records import Record

HINTS = frozenset(
    {
        "cache_control",
        "cache_salt",
        "include_reasoning",
        "metadata",
        "parallel_tool_calls",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "request_id",
        "safety_identifier",
        "store",
        "user",
    }
)
"""Fields without effect: they tell OpenAI whom to bill, what to keep, or how to call tools."""

NO_ORDER = "a diffusion model writes in no fixed order, so a token has no history to be judged by"
NO_TOOLS = "this server calls no tools"
TEXT_ONLY = "this server reads and writes text"
ANY_ORDER = (
    "tokens are written in any order, several at once, and this server has no grammar that holds "
    "under that; check the answer, or give the allowed answers to POST /v1/rank or /v1/decisions"
)
ONE_DISTRIBUTION = "tokens are drawn by temperature, top_p and top_k"
ITS_OWN_END = "an answer ends with the model's end token; see dise.logits_eos_inf"
WHOLE_PROMPT = "prompts are read as they are given, with the model's own chat template"
NO_MEMORY = "this server remembers no conversation: send all of it"

NOT_SUPPORTED = "not_supported"
"""The type of pydantic's problem with a field that asks for what is not there."""

NEUTRAL: Mapping[str, tuple[tuple[JsonValue, ...], str]] = {
    "frequency_penalty": ((0,), NO_ORDER),
    "presence_penalty": ((0,), NO_ORDER),
    "repetition_penalty": ((1,), NO_ORDER),
    "length_penalty": ((1,), NO_ORDER),
    "no_repeat_ngram_size": ((0,), NO_ORDER),
    "bad_words": (([],), NO_ORDER),
    "logits_processors": (([],), NO_ORDER),
    "use_beam_search": ((False,), NO_ORDER),
    "early_stopping": ((False,), NO_ORDER),
    "prediction": ((), NO_ORDER),
    "min_p": ((0,), ONE_DISTRIBUTION),
    "typical_p": ((1,), ONE_DISTRIBUTION),
    "tools": (([],), NO_TOOLS),
    "tool_choice": (("none", "auto"), NO_TOOLS),
    "tool_calls": (([],), NO_TOOLS),
    "annotations": (([],), NO_TOOLS),
    "refusal": ((), "the model has no refusals apart from its answer"),
    "functions": (([],), NO_TOOLS),
    "function_call": (("none", "auto"), NO_TOOLS),
    "web_search_options": ((), NO_TOOLS),
    "audio": ((), TEXT_ONLY),
    "image": ((), TEXT_ONLY),
    "modalities": ((["text"],), TEXT_ONLY),
    "mm_processor_kwargs": (({},), TEXT_ONLY),
    "moderation": ((), "this server moderates nothing"),
    "reasoning_effort": (("none",), "the model writes no reasoning apart from its answer"),
    "thinking_token_budget": ((), "the model writes no reasoning apart from its answer"),
    "verbosity": (("medium",), "the model knows no such setting; say it in the prompt"),
    "service_tier": (("auto", "default"), "there is one tier here"),
    "priority": ((0,), "callers take turns here"),
    "response_format": (({"type": "text"},), ANY_ORDER),
    "structured_outputs": (({},), ANY_ORDER),
    "structural_tag": ((), ANY_ORDER),
    "guided_json": ((), ANY_ORDER),
    "guided_regex": ((), ANY_ORDER),
    "guided_choice": ((), ANY_ORDER),
    "guided_grammar": ((), ANY_ORDER),
    "guided_decoding_backend": ((), ANY_ORDER),
    "guided_whitespace_pattern": ((), ANY_ORDER),
    "grammar": (("",), ANY_ORDER),
    "ignore_eos": ((False,), ITS_OWN_END),
    "min_tokens": ((0,), ITS_OWN_END),
    "stop_token_ids": (([],), ITS_OWN_END),
    "include_stop_str_in_output": ((False,), "an answer's text ends before the stop text"),
    "skip_special_tokens": ((True,), "special tokens stand in dise.tokens"),
    "spaces_between_special_tokens": ((True,), "special tokens stand in dise.tokens"),
    "return_tokens_as_token_ids": ((False,), "ids stand in dise.tokens"),
    "return_token_ids": ((False,), "ids stand in dise.tokens"),
    "prompt_logprobs": ((), "POST /v1/completions scores a prompt with echo"),
    "truncate_prompt_tokens": ((), WHOLE_PROMPT),
    "add_special_tokens": ((False,), WHOLE_PROMPT),
    "add_generation_prompt": ((True,), WHOLE_PROMPT),
    "continue_final_message": ((False,), WHOLE_PROMPT),
    "chat_template": ((), WHOLE_PROMPT),
    "chat_template_kwargs": (({},), WHOLE_PROMPT),
    "documents": (([],), WHOLE_PROMPT),
    "prompt_embeds": (([],), WHOLE_PROMPT),
    "suffix": (("",), WHOLE_PROMPT),
    "kv_transfer_params": (({},), "this server holds its own cache"),
    "vllm_xargs": (({},), "this server runs no plugin of vLLM's"),
    "background": ((False,), "answers are sent while the client waits"),
    "background_options": ((), "answers are sent while the client waits"),
    "access_programs": ((), "this server has no programs"),
    "context_management": (([],), NO_MEMORY),
    "conversation": ((), NO_MEMORY),
    "previous_response_id": ((), NO_MEMORY),
    "prompt": ((), "only POST /v1/completions takes a prompt as it is"),
    "echo": ((False,), "only POST /v1/completions has it"),
    "truncation": (("disabled",), WHOLE_PROMPT),
}
"""Fields by name: the values that ask for nothing, beside null, and why no other is taken."""


def without_neutral(given: object, own: frozenset[str]) -> object:
    """Return a body without its hints, its neutral fields, and those of its `own` that are null.

    Raises PydanticCustomError, which names the field, for one that asks for what is not there.
    """
    if not isinstance(given, dict):
        return given
    kept: Record = {}
    for name, value in given.items():
        if name in own:
            if value is not None:
                kept[name] = value
        elif name in NEUTRAL:
            refuse_unless_neutral(name, value)
        elif name not in HINTS:
            kept[name] = value
    return kept


def refuse_unless_neutral(name: str, value: object) -> None:
    """Raise PydanticCustomError unless the field's value asks for nothing."""
    values, why = NEUTRAL[name]
    if value is None or value in values:
        return
    allowed = "".join(f", or give {shown}" for shown in map(json.dumps, values[:1]))
    said = {"name": name, "why": why, "allowed": allowed}
    raise PydanticCustomError(
        NOT_SUPPORTED, "{name} is not supported: {why}; leave it out{allowed}", said
    )
