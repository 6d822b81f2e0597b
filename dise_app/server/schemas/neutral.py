"""Fields of OpenAI's and vLLM's APIs that have no effect here."""

import json

from pydantic import JsonValue
from pydantic_core import PydanticCustomError

WITHOUT_EFFECT = (
    "cache_control include_reasoning metadata parallel_tool_calls parsed "
    "parsed_arguments prompt_cache_key prompt_cache_options prompt_cache_retention request_id "
    "safety_identifier separate_reasoning session_id store stream_reasoning user"
)
HINTS = frozenset(WITHOUT_EFFECT.split())
"""Fields without effect, about bills, storage, calls of tools and earlier answers."""

NOT_SUPPORTED = "not_supported"
"""The type of pydantic's problem with a field that asks for what is not there."""

REASONS = {
    "a diffusion model writes in no fixed order, so a token has no history to be judged by": (
        "frequency_penalty=0 presence_penalty=0 repetition_penalty=1 length_penalty=1 "
        "no_repeat_ngram_size=0 bad_words=[] logits_processors=[] use_beam_search=false "
        "early_stopping=false prediction= custom_logit_processor= custom_params="
    ),
    "answers can be held to a JSON schema, a regular expression or a list of texts, by "
    "response_format or structured_outputs, and to nothing else": (
        "structural_tag= guided_grammar= guided_decoding_backend= guided_whitespace_pattern= "
        'whitespace_pattern= grammar="" regex= ebnf='
    ),
    "tokens are drawn by temperature, top_p and top_k": "min_p=0 typical_p=1",
    "only POST /v1/chat/completions calls tools, which are functions": (
        'tools=[] tool_choice="none"|"auto" tool_calls=[] tool_call_id= annotations=[] '
        'functions=[] function_call="none"|"auto" web_search_options='
    ),
    "this server reads and writes text": (
        'audio= image= modalities=["text"] mm_processor_kwargs={}'
    ),
    "the model writes no refusal and no reasoning apart from its answer": (
        'reasoning_effort="none" thinking_token_budget= refusal='
    ),
    "an answer ends with the model's end token or before a stop text; see logits_eos_inf of "
    "dise.unmasking_settings": (
        "ignore_eos=false min_tokens=0 stop_token_ids=[] include_stop_str_in_output=false "
        "stop_regex= no_stop_trim=false"
    ),
    "special tokens and ids stand in dise.tokens": (
        "skip_special_tokens=true spaces_between_special_tokens=true "
        "return_tokens_as_token_ids=false return_token_ids=false"
    ),
    "prompts are read as they are given, with the model's own chat template": (
        'truncate_prompt_tokens= truncation="disabled" add_special_tokens=false suffix="" '
        "add_generation_prompt=true continue_final_message=false chat_template= "
        "chat_template_kwargs={} documents=[] prompt_embeds=[]"
    ),
    "only POST /v1/completions takes a prompt as it is, and scores it with echo": (
        "prompt= echo=false prompt_logprobs="
    ),
    "this server remembers no conversation: send all of it": (
        "context_management=[] conversation= previous_response_id="
    ),
    "answers are sent while the client waits": "background=false background_options=",
    "there is one tier here, and callers take turns": 'service_tier="auto"|"default" priority=0',
    "this server has no such thing": (
        'verbosity="medium" moderation= kv_transfer_params={} vllm_xargs={} access_programs= '
        "lora_path= session_params= return_hidden_states=false logprob_token_ids=[] "
        "bootstrap_host= bootstrap_port= bootstrap_room= extra_key= watermarking=false"
    ),
}
"""Fields with their neutral values beside null, by why no other is taken."""


NEUTRAL: dict[str, tuple[list[JsonValue], str]] = {
    name: ([json.loads(value) for value in values.split("|") if value], why)
    for why, fields in REASONS.items()
    for name, _, values in (field.partition("=") for field in fields.split())
}
"""Fields by name: the neutral values beside null, and why no other is taken."""


def without_neutral(body: object, fields: frozenset[str]) -> object:
    """Return a body without its hints, its neutral fields, and its `fields` that are
    null.

    Raises PydanticCustomError, which names the field, for one that asks for what is not
    there.
    """
    if not isinstance(body, dict):
        return body
    for name, value in body.items():
        if name in NEUTRAL.keys() - fields:
            _refuse_unless_neutral(name, value)
    unread = HINTS | NEUTRAL.keys()
    return {
        name: value
        for name, value in body.items()
        if (value is not None if name in fields else name not in unread)
    }


def _refuse_unless_neutral(name: str, value: object) -> None:
    values, why = NEUTRAL[name]
    if value is not None and value not in values:
        allowed = f", or give {json.dumps(values[0])}" if values else ""
        facts = {"name": name, "why": why, "allowed": allowed}
        message = "{name} is not supported: {why}; leave it out{allowed}"
        raise PydanticCustomError(NOT_SUPPORTED, message, facts)
