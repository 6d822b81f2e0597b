"""POST /v1/completions and /v1/chat/completions."""

import time
import uuid
from collections.abc import Sequence

from fastapi import FastAPI, Request
from fastapi.responses import Response

from dise_app.server.choices import (
    JsonObject,
    chat_logprobs,
    confidence,
    cost,
    step_map,
    text_logprobs,
    text_tokens,
    usage,
)
from dise_app.server.errors import ErrorObject, ServerError
from dise_app.server.routes.echoes import echo
from dise_app.server.schemas.requests import ChatRequest, Completion, CompletionRequest
from dise_app.server.schemas.tools import call_of
from dise_app.server.service import Service, written_out
from dise_app.server.streaming import Reply, chat, stream
from dise_core import CompletionOutput, RequestOutput, SamplingParams


class CompletionReply(Reply):
    """Completions of a text or of a chat."""

    ending = "data: [DONE]\n\n"

    def __init__(self, body: Completion, params: SamplingParams, model: str) -> None:
        super().__init__(body, params)
        self._num_choices, options = params.n, body.stream_options
        self._is_chat, self._is_call = isinstance(body, ChatRequest), bool(body.shown_tools)
        self._has_steps = isinstance(body, CompletionRequest) and body.return_step_maps
        self._chosen = body.chosen if isinstance(body, ChatRequest) else None
        self._shows_ids = body.return_token_ids
        self._wants_usage = options is not None and options.include_usage
        self._shared: JsonObject = {
            "id": body.rid or f"{'chatcmpl' if self._is_chat else 'cmpl'}-{uuid.uuid4().hex}",
            "object": "chat.completion" if self._is_chat else "text_completion",
            "created": int(time.time()),
            "model": model,
        }

    def of(self, **fields: object) -> JsonObject:
        return {**self._shared, **fields}

    def whole(self, answers: Sequence[RequestOutput]) -> JsonObject:
        outputs = [(output, answer) for answer in answers for output in answer.outputs]
        choices = []
        for index, (output, answer) in enumerate(outputs):
            text: JsonObject = {"text": output.text}
            if self._is_chat:
                text = {"message": {"role": "assistant", **self._said(output.text)}}
            choices.append(self._choice(index, text, output, answer))
        ids = self._prompt_ids(answers[0], of_chat=True)
        return self.of(choices=choices, usage=usage(answers), dise=cost(answers), **ids)

    def begun(self) -> list[JsonObject]:
        message: JsonObject = {"content": ""}
        numbers = range(self._num_choices)
        return [self._chunk([self._delta(index, message, role="assistant") for index in numbers])]

    def added(self, text: str, **more: JsonObject) -> JsonObject:
        return self._chunk([self._delta(0, {"content": text})] if text else [], **more)

    def ended(self, answer: RequestOutput) -> list[JsonObject]:
        events, spent = [], cost([answer])
        ids = self._prompt_ids(answer, of_chat=True)
        text: JsonObject = {"delta": {}} if self._is_chat else {"text": ""}
        for index, output in enumerate(answer.outputs):
            if unsent := self.unsent(output.text):
                events.append(self._chunk([self._delta(index, self._said(unsent, index=0))]))
            choice = self._choice(index, text, output, answer)
            events.append(self._chunk([choice], dise=spent, **ids))
        if self._wants_usage:
            events.append(self._chunk([], usage=usage([answer]), dise=spent))
        return events

    def failed(self, error: ErrorObject) -> JsonObject:
        return {"error": error}

    def _chunk(self, choices: Sequence[JsonObject], **more: object) -> JsonObject:
        chunk = self.of(choices=choices, **more)
        return chunk | {"object": "chat.completion.chunk"} if self._is_chat else chunk

    def _said(self, text: str, **place: int) -> JsonObject:
        """Return an answer's text, or the call that it is. place: the call's index."""
        if not self._is_call:
            return {"content": text}
        return {"content": None, "tool_calls": [call_of(text, self._chosen) | place]}

    def _delta(self, index: int, message: JsonObject, **role: str) -> JsonObject:
        added = {"delta": {**role, **message}} if self._is_chat else {"text": message["content"]}
        return {"index": index, **added, "finish_reason": None, "logprobs": None}

    def _prompt_ids(self, answer: RequestOutput, of_chat: bool) -> JsonObject:
        """Return the prompt's ids where vLLM has them: in the answer of a chat, in each
        choice of a text.
        """
        is_here = self._shows_ids and self._is_chat is of_chat
        return {"prompt_token_ids": answer.prompt_token_ids} if is_here else {}

    def _choice(
        self, index: int, text: JsonObject, output: CompletionOutput, answer: RequestOutput
    ) -> JsonObject:
        tokens = text_tokens(output) if self.has_logprobs else None
        logprobs = chat_logprobs if self._is_chat else text_logprobs
        reason = output.finish_reason
        is_call = self._is_call and self._chosen is None and reason == "stop"
        start = len(answer.prompt_token_ids)
        return {
            "index": index,
            **text,
            "finish_reason": "tool_calls" if is_call else reason,
            "logprobs": None if tokens is None else logprobs(tokens),
            **({"token_ids": output.token_ids} if self._shows_ids else {}),
            **self._prompt_ids(answer, of_chat=False),
            "dise": confidence(output, answer.seed),
            **({"meta_info": step_map(output, start)} if self._has_steps else {}),
        }


def add_completions(app: FastAPI, service: Service) -> None:
    """Add both routes."""

    @app.post("/v1/completions")
    async def completions(body: CompletionRequest, request: Request) -> Response:
        prepared = await service.sampling(body, request)
        reply = CompletionReply(body, prepared.asked, service.model)
        if body.echo:
            return await echo(service, body, prepared, request, reply.of)
        if not body.stream:
            if body.suffix:
                work = service.llm.fill(body.prompts, [body.suffix] * len(body.prompts), prepared)
            else:
                work = service.llm.generate(body.prompts, prepared, chat=False)
            answers = await service.run(work, request)
            return await written_out(lambda: reply.whole(answers), answers[0].outputs[0])
        if len(body.prompts) > 1:
            raise ServerError(400, "stream takes one prompt; send several requests", "stream")
        suffix = body.suffix or None
        steps = service.llm.stream(body.prompts[0], prepared, chat=False, suffix=suffix)
        return await stream(service, steps, reply, request)

    @app.post("/v1/chat/completions")
    async def chat_completions(body: ChatRequest, request: Request) -> Response:
        return await chat(service, body, request, CompletionReply)
