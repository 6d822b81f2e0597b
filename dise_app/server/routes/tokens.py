"""POST /tokenize and /detokenize, and GET /tokenizer_info, as vLLM's."""

from collections.abc import Sequence
from typing import Self

from fastapi import FastAPI, Request
from pydantic import Field, model_validator

from dise_app.server.choices import JsonObject
from dise_app.server.schemas.bodies import FastList, OpenBody, TokenIds
from dise_app.server.schemas.requests import ChatMessage
from dise_app.server.service import Service, unless_gone
from dise_core import MaskPredictor, Plan
from dise_core.front.planner import Planner
from dise_core.front.verbs import Job, one_result
from dise_core.models.prompts import Prompts
from dise_core.params.base import MAX_LENGTH, Settings
from dise_core.sequence import as_ids, check_token_ids


class TokenizeRequest(OpenBody):
    """POST /tokenize: a text as /v1/completions reads it, or a conversation."""

    model: str | None = None
    prompt: str | None = None
    messages: FastList[ChatMessage] | None = Field(default=None, min_length=1, max_length=1024)
    chat_template_kwargs: Settings | None = None
    add_special_tokens: bool = False
    return_token_strs: bool = False

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("give either a prompt or messages")
        if self.messages is None and self.chat_template_kwargs:
            raise ValueError("chat_template_kwargs are for messages; leave them out")
        return self


class DetokenizeRequest(OpenBody):
    """POST /detokenize."""

    model: str | None = None
    tokens: TokenIds = Field(max_length=MAX_LENGTH)


def add_tokens(app: FastAPI, service: Service) -> None:
    """Add the routes."""

    async def planned(plan: Plan[JsonObject], request: Request) -> JsonObject:
        work = service.llm.do(Job([plan], one_result))
        return await unless_gone(work, request, service.limits.timeout)

    @app.post("/tokenize")
    async def tokenize(body: TokenizeRequest, request: Request) -> JsonObject:
        service.check_model(body.model)
        return await planned(_tokenized(service.llm.planner, body), request)

    @app.post("/detokenize")
    async def detokenize(body: DetokenizeRequest, request: Request) -> JsonObject:
        service.check_model(body.model)
        return await planned(_detokenized(service.llm.predictor, body.tokens), request)

    @app.get("/tokenizer_info")
    async def tokenizer_info() -> JsonObject:
        return _info(service.llm.predictor)


def _tokenized(planner: Planner, body: TokenizeRequest) -> Plan[JsonObject]:
    """Return a plan without reads, which tokenizes in the engine's thread."""
    yield from ()
    info, tokenizer = planner.predictor.info, planner.predictor.tokenizer
    prompts = Prompts(planner.predictors)
    if body.messages is not None:
        turns = [message.plain() for message in body.messages]
        kwargs = body.chat_template_kwargs
        ids = prompts.conversation(turns, template_kwargs=kwargs).ids.tolist()
    else:
        prompts.refuse_endless(body.prompt or "", "prompt")
        start = tokenizer.start_ids.tolist() if body.add_special_tokens else []
        ids = start + tokenizer.encode(body.prompt or "").tolist()
    answer: JsonObject = {"count": len(ids), "max_model_len": info.max_length, "tokens": ids}
    if body.return_token_strs:
        answer["token_strs"] = [tokenizer.token_text(token) for token in ids]
    return answer


def _detokenized(predictor: MaskPredictor, tokens: Sequence[int]) -> Plan[JsonObject]:
    yield from ()
    ids = as_ids(tokens)
    check_token_ids(ids, predictor.info.vocab_size, "tokens")
    return {"prompt": predictor.tokenizer.decode(ids)}


def _info(predictor: MaskPredictor) -> JsonObject:
    """Return what lm-evaluation-harness asks of a server before it tokenizes there."""
    info, tokenizer = predictor.info, predictor.tokenizer
    start = next(iter(tokenizer.start_ids.tolist()), None)
    end, mask = info.special.eos_id, info.mask_token_id
    ids = {"bos_token": start, "eos_token": end, "mask_token": mask}
    texts = {n: tokenizer.token_text(token) for n, token in ids.items() if token is not None}
    return {
        "tokenizer_class": type(tokenizer).__name__,
        "vocab_size": predictor.info.vocab_size,
        "has_chat_template": tokenizer.has_chat_template,
        **dict.fromkeys(ids),
        **texts,
    }
