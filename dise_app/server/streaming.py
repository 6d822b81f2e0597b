"""Replies to requests for answers: whole, or as server-sent events."""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import ClassVar, TypeVar

from fastapi import Request
from fastapi.responses import Response, StreamingResponse

from dise_app.server import choices
from dise_app.server.choices import JsonObject
from dise_app.server.errors import ErrorObject, error_object
from dise_app.server.schemas.requests import ChatRequest, WritingRequest
from dise_app.server.schemas.responses import ResponseRequest
from dise_app.server.service import Service, unless_gone, written_out
from dise_core import CanvasUpdate, DiseError, RequestOutput, SamplingParams
from dise_core.models.pieces import BROKEN

T = TypeVar("T")
Talk = TypeVar("Talk", ChatRequest, ResponseRequest)


class Reply(ABC):
    """What a client is sent in the format of its API."""

    ending: ClassVar[str] = ""
    """The last line of a stream, after an error too."""

    def __init__(self, body: WritingRequest, params: SamplingParams) -> None:
        self._stops, self._num_sent = params.stop, 0
        self.streams_text = params.num_samples == 1 and not body.shown_tools
        self.shows_canvas = body.dise.stream == "canvas"
        self.has_logprobs = body.shown_logprobs is not None

    @abstractmethod
    def whole(self, answers: Sequence[RequestOutput]) -> JsonObject:
        """Return the answers to all prompts of a request."""

    @abstractmethod
    def begun(self) -> list[JsonObject]:
        """Return the events before any text."""

    @abstractmethod
    def added(self, text: str, **more: JsonObject) -> JsonObject:
        """Return the event of a step that settled a text, which may be empty."""

    @abstractmethod
    def ended(self, answer: RequestOutput) -> list[JsonObject]:
        """Return the events from the text that has not been sent to the end."""

    @abstractmethod
    def failed(self, error: ErrorObject) -> JsonObject:
        """Return the event that a stream ends with after an error."""

    def unsent(self, text: str) -> str:
        """Return what has not been sent of the text of a single answer."""
        return text[self._num_sent :]

    def line(self, event: JsonObject) -> str:
        return f"data: {json.dumps(event, ensure_ascii=False, allow_nan=False)}\n\n"

    def step(self, step: CanvasUpdate | RequestOutput) -> list[JsonObject]:
        """Return the events of a denoising step, or of the answer. A single answer's text
        is sent as it settles; of several, which are ranked at the end, and of a call none
        is sent before.
        """
        if isinstance(step, RequestOutput):
            return self.ended(step)
        text = self._settled(step.settled) if self.streams_text else ""
        if self.shows_canvas:
            return [self.added(text, dise={"canvas": choices.canvas(step)})]
        return [self.added(text)] if text else []

    def _settled(self, text: str) -> str:
        """Return the settled text that is sent now: what may turn out to be the start of
        a stop text is held back.
        """
        text = text.rstrip(BROKEN)
        starts = (stop[:length] for stop in self._stops for length in range(1, len(stop)))
        num_held = max((len(start) for start in starts if text.endswith(start)), default=0)
        ends = [text.find(stop) for stop in self._stops if stop in text]
        new = text[self._num_sent : min([*ends, len(text) - num_held])]
        self._num_sent += len(new)
        return new


async def stream(
    service: Service,
    steps: AsyncGenerator[CanvasUpdate | RequestOutput, None],
    reply: Reply,
    request: Request,
) -> Response:
    """Return the steps as server-sent events, but raise what the first step raises, and
    what unless_gone raises before it.
    """
    news = _until(asyncio.get_running_loop().time() + service.limits.timeout, steps)
    first = await unless_gone(anext(news), request, service.limits.timeout)

    def events(step: CanvasUpdate | RequestOutput) -> list[JsonObject]:
        if isinstance(step, RequestOutput):
            service.metrics.count(step)
        return reply.step(step)

    async def lines() -> AsyncIterator[str]:
        async with aclosing(steps):
            try:
                for event in [*reply.begun(), *events(first)]:
                    yield reply.line(event)
                async for step in news:
                    for event in events(step):
                        yield reply.line(event)
            except (DiseError, TimeoutError) as error:
                yield reply.line(reply.failed(error_object(error)))
        if reply.ending:
            yield reply.ending

    headers = {"Cache-Control": "no-store"}
    return StreamingResponse(lines(), media_type="text/event-stream", headers=headers)


async def chat(
    service: Service,
    body: Talk,
    request: Request,
    form: Callable[[Talk, SamplingParams, str], Reply],
) -> Response:
    """Return the reply to a conversation."""
    service.check_chat()
    prepared = await service.sampling(body, request)
    reply = form(body, prepared.asked, service.model)
    turns, tools = body.conversation, body.shown_tools
    llm, kwargs = service.llm, body.chat_template_kwargs
    if body.stream:
        steps = llm.stream(turns, prepared, tools=tools, chat_template_kwargs=kwargs)
        return await stream(service, steps, reply, request)
    work = llm.chat(turns, prepared, tools=tools, chat_template_kwargs=kwargs)
    outputs = await service.run(work, request)
    return await written_out(lambda: reply.whole(outputs), outputs[0].outputs[0])


async def _until(deadline: float, steps: AsyncIterator[T]) -> AsyncIterator[T]:
    """Yield the steps. Raises TimeoutError when the loop's clock passes the deadline."""
    while True:
        async with asyncio.timeout_at(deadline):
            try:
                step = await anext(steps)
            except StopAsyncIteration:
                return
        yield step
