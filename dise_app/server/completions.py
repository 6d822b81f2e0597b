"""POST /v1/completions and /v1/chat/completions."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from dise_app.server import echoes, errors
from dise_app.server.answers import Envelope
from dise_app.server.errors import ServerError
from dise_app.server.schemas import ChatRequest, Completion, CompletionRequest
from dise_app.server.service import Service
from dise_app.server.streaming import stream
from dise_core import CanvasUpdate, RequestOutput, SamplingParams
from dise_core.errors import DiseError
from dise_core.records import Record


def add_completions(app: FastAPI, service: Service) -> None:
    """Add both routes."""

    @app.post("/v1/completions")
    async def completions(body: CompletionRequest, request: Request) -> Response:
        params = service.sampling(body, body.logprobs or 0)
        envelope = Envelope("text_completion", service.model)
        if body.echo:
            echoed = await echoes.run(service, body, params, request)
            return JSONResponse(echoes.whole(envelope, body, echoed))
        if body.stream:
            if len(body.prompts) > 1:
                raise ServerError(400, "stream takes one prompt; send several requests", "stream")
            events = service.llm.stream(body.prompts[0], params, chat=False)
            return await _streamed(service, events, envelope, params, body, body.logprobs)
        work = service.llm.generate(body.prompts, params, chat=False)
        return JSONResponse(envelope.whole(await service.run(work, request), body.logprobs))

    @app.post("/v1/chat/completions")
    async def chat_completions(body: ChatRequest, request: Request) -> Response:
        service.check_chat()
        logprobs = body.shown_logprobs
        params = service.sampling(body, logprobs or 0)
        envelope = Envelope("chat.completion", service.model)
        if body.stream:
            events = service.llm.stream(body.conversation, params)
            return await _streamed(service, events, envelope, params, body, logprobs)
        results = await service.run(service.llm.chat(body.conversation, params), request)
        return JSONResponse(envelope.whole(results, logprobs))


async def _streamed(
    service: Service,
    events: AsyncGenerator[CanvasUpdate | RequestOutput, None],
    envelope: Envelope,
    params: SamplingParams,
    body: Completion,
    logprobs: int | None,
) -> Response:
    limit, count = service.limits.timeout, service.metrics.count
    chunks = stream(events, envelope, params, body, logprobs, count, limit)
    return event_stream(_lines(await anext(chunks), chunks))


def event_stream(lines: AsyncIterator[str]) -> StreamingResponse:
    """Return a response of server-sent events."""
    headers = {"Cache-Control": "no-store"}
    return StreamingResponse(lines, media_type="text/event-stream", headers=headers)


async def _lines(first: Record, rest: AsyncGenerator[Record, None]) -> AsyncIterator[str]:
    """Yield server-sent events. After an error, which is sent as an event, only [DONE] follows."""
    yield data_line(first)
    async with aclosing(rest) as events:
        try:
            async for event in events:
                yield data_line(event)
        except (DiseError, TimeoutError) as error:
            yield data_line(errors.in_stream(error))
    yield "data: [DONE]\n\n"


def data_line(event: Record) -> str:
    """Return a server-sent event that holds JSON."""
    return f"data: {json.dumps(event, ensure_ascii=False, allow_nan=False)}\n\n"
