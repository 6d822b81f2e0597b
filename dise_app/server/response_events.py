"""A response as a stream of OpenAI's typed events: its text as it settles, then all of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING

from dise_app.server import answers, errors
from dise_app.server.response_schemas import ResponseRequest
from dise_app.server.service import Service
from dise_app.server.streaming import SettledText, until
from dise_core import CanvasUpdate, RequestOutput, SamplingParams
from dise_core.errors import DiseError
from dise_core.records import Record

if TYPE_CHECKING:
    from dise_app.server.responses import ResponseEnvelope


async def lines(
    service: Service, body: ResponseRequest, params: SamplingParams, envelope: ResponseEnvelope
) -> AsyncIterator[str]:
    """Return server-sent events. Raises what the first step raises: its status can still be sent.

    After an error, which is sent as an event, there are no more.
    """
    news = service.llm.stream(body.conversation, params)
    deadline = asyncio.get_running_loop().time() + service.limits.timeout
    steps = until(deadline, news)
    first = await anext(steps)

    async def sent() -> AsyncGenerator[str, None]:
        writer = _Writer(envelope, body.dise.stream == "canvas", params.num_samples == 1)
        async with aclosing(news):
            try:
                for event in [*writer.begun(), *writer.step(first)]:
                    yield _line(event)
                async for step in steps:
                    if isinstance(step, RequestOutput):
                        service.metrics.count(step)
                    for event in writer.step(step):
                        yield _line(event)
            except (DiseError, TimeoutError) as error:
                yield _line(writer.failed(error))

    return sent()


class _Writer:
    """The events of one response, numbered."""

    def __init__(self, envelope: ResponseEnvelope, is_shown: bool, is_one: bool) -> None:
        """is_shown: whether every step's canvas is sent. is_one: whether one answer is written; of
        several the best is sent, once it is known.
        """
        self._is_one = is_one
        self._envelope = envelope
        self._is_shown = is_shown
        self._settled = SettledText(())
        self._number = -1

    def begun(self) -> list[Record]:
        """Return the events before any text."""
        begun = self._envelope.begun()
        return [
            self._event("response.created", response=begun),
            self._event("response.in_progress", response=begun),
            self._event(
                "response.output_item.added", output_index=0, item=self._envelope.message(None)
            ),
            self._event("response.content_part.added", **self._place, part=self._envelope.part("")),
        ]

    def step(self, step: CanvasUpdate | RequestOutput) -> list[Record]:
        """Return the events of one step, or of the answer."""
        if isinstance(step, RequestOutput):
            return self._ended(step)
        canvas = {"dise": {"canvas": answers.canvas(step)}} if self._is_shown else {}
        text = self._settled.new(step.settled) if self._is_one else ""
        return self._delta(text, **canvas)

    def failed(self, error: Exception) -> Record:
        told = errors.in_stream(error)["error"]
        facts = {name: told[name] for name in ("message", "code", "param")}
        return self._event("error", **facts)

    def _ended(self, answer: RequestOutput) -> list[Record]:
        envelope, text = self._envelope, answer.outputs[0].text
        whole = envelope.whole(answer)
        done = {"text": text, "logprobs": envelope.logprobs(answer)}
        return [
            *self._delta(self._settled.rest(text)),
            self._event("response.output_text.done", **self._place, **done),
            self._event(
                "response.content_part.done", **self._place, part=envelope.part(text, answer)
            ),
            self._event("response.output_item.done", output_index=0, item=envelope.message(answer)),
            self._event(f"response.{whole['status']}", response=whole),
        ]

    def _delta(self, text: str, **more: Record) -> list[Record]:
        if not text and not more:
            return []
        delta = {"delta": text, "logprobs": [], **more}
        return [self._event("response.output_text.delta", **self._place, **delta)]

    @property
    def _place(self) -> Record:
        return {"item_id": self._envelope.message_id, "output_index": 0, "content_index": 0}

    def _event(self, kind: str, **fields: object) -> Record:
        self._number += 1
        return {"type": kind, "sequence_number": self._number, **fields}


def _line(event: Record) -> str:
    content = json.dumps(event, ensure_ascii=False, allow_nan=False)
    return f"event: {event['type']}\ndata: {content}\n\n"
