"""A completion as a stream of chunks: text as soon as it can no longer change and, if asked for,
every step of the canvas.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import TypeVar

from dise_app.server import answers
from dise_app.server.answers import Envelope
from dise_app.server.schemas import Completion
from dise_core import CanvasUpdate, RequestOutput, SamplingParams
from dise_core.pieces import BROKEN
from dise_core.records import Record

T = TypeVar("T")


class SettledText:
    """The text of one answer that has been sent so far, as it settles.

    Text that may turn out to be the start of a stop text is held back.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._sent = ""

    def new(self, text: str) -> str:
        """Return the part of the settled text that can be sent now and has not been sent yet."""
        text = text.rstrip(BROKEN)
        held = max(
            (
                length
                for stop in self._stops
                for length in range(1, len(stop))
                if text.endswith(stop[:length])
            ),
            default=0,
        )
        ends = [start for stop in self._stops if (start := text.find(stop)) >= 0]
        return self._send(text[: min([*ends, len(text) - held])])

    def rest(self, text: str) -> str:
        """Return the part of the finished text that has not been sent yet."""
        return self._send(text)

    def _send(self, text: str) -> str:
        new = text[len(self._sent) :]
        self._sent += new
        return new


async def stream(
    events: AsyncGenerator[CanvasUpdate | RequestOutput, None],
    envelope: Envelope,
    params: SamplingParams,
    body: Completion,
    logprobs: int | None,
    count: Callable[[RequestOutput], None],
    timeout: float,
) -> AsyncGenerator[Record, None]:
    """Yield the chunks of one completion. A single answer's text is sent as it settles; several
    answers are sent at the end, ranked. Raises what the events raise, and TimeoutError.
    """
    settled = SettledText(params.stop)
    is_one = params.num_samples == 1
    is_shown = body.dise.stream == "canvas"
    is_first = True
    async with aclosing(events):
        async for event in until(asyncio.get_running_loop().time() + timeout, events):
            if is_first:
                yield envelope.chunk(
                    [envelope.delta(index, "", is_first=True) for index in range(params.n)]
                )
                is_first = False
            if isinstance(event, CanvasUpdate):
                text = settled.new(event.settled) if is_one else ""
                choices = [envelope.delta(0, text)] if text else []
                if is_shown:
                    yield envelope.chunk(choices, dise={"canvas": answers.canvas(event)})
                elif choices:
                    yield envelope.chunk(choices)
                continue
            count(event)
            for chunk in _ending(envelope, event, settled if is_one else None, logprobs):
                yield chunk
            if body.wants_usage:
                yield envelope.chunk([], usage=answers.usage([event]), dise=answers.cost([event]))


async def until(deadline: float, events: AsyncIterator[T]) -> AsyncIterator[T]:
    """Yield the events. Raises TimeoutError when the loop's clock passes the deadline."""
    while True:
        async with asyncio.timeout_at(deadline):
            try:
                event = await anext(events)
            except StopAsyncIteration:
                return
        yield event


def _ending(
    envelope: Envelope, answer: RequestOutput, settled: SettledText | None, logprobs: int | None
) -> list[Record]:
    """Return the chunks that end a stream: for each output its remaining text, then its score."""
    chunks = []
    for index, output in enumerate(answer.outputs):
        text = output.text if settled is None else settled.rest(output.text)
        if text:
            chunks.append(envelope.chunk([envelope.delta(index, text)]))
        chunks.append(
            envelope.chunk(
                [envelope.last(index, output, answer.seed, logprobs)], dise=answers.cost([answer])
            )
        )
    return chunks
