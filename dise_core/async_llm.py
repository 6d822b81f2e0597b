"""AsyncLLM: the same front door for programs that serve many callers at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self, Unpack

import numpy as np

from dise_core.arrays import Ids
from dise_core.catalog import Catalog
from dise_core.engine import AsyncEngine, Engine
from dise_core.llm import LLM
from dise_core.model import MaskPredictor
from dise_core.outputs import RequestOutput
from dise_core.params import EngineOptions, SamplingParams, ScoringParams
from dise_core.planner import Planner
from dise_core.prompts import Message, Prompt
from dise_core.reading import Canvas, Plan, Read


@dataclass(frozen=True, slots=True)
class CanvasUpdate:
    """What one denoising step has changed in a response under way.

    index: which of the request's samples. committed: (place in the response, token id, its text) of
    the tokens that are new since the last update; those of the last step come with the answer.
    num_tokens: the canvas's length. text: all text before the first mask. is_fresh: the canvas was
    begun anew (a length controller has masked its tail again), so what was committed before no
    longer stands.
    """

    index: int
    committed: tuple[tuple[int, int, str], ...]
    num_tokens: int
    text: str
    is_fresh: bool


class AsyncLLM:
    """A loaded model whose methods are LLM's, awaited; requests of all callers share batches.

    A caller that is cancelled, by a time-out for example, frees its request's place before the next
    forward pass.

    >>> async with AsyncLLM("countdown") as llm:
    ...     async with asyncio.timeout(10):
    ...         [answer] = await llm.generate("83,18,75 -> 10", SamplingParams(max_tokens=48))
    """

    def __init__(
        self,
        model: str | MaskPredictor = "countdown",
        *,
        judge: str | MaskPredictor | None = None,
        catalog: Catalog | None = None,
        max_waiting: int = 1024,
        **options: Unpack[EngineOptions],
    ) -> None:
        """Load the models as LLM does and start the engine's thread; at most max_waiting requests
        wait for a place.

        Each method raises OverloadedError where one more would have to wait, ClosedError after
        `close`.
        """
        loaded: list[LLM] = []

        def load() -> Engine:
            loaded.append(LLM(model, judge=judge, catalog=catalog, **options))
            return loaded[0].engine

        self.engine = AsyncEngine(load, max_waiting)
        [llm] = loaded
        self.config = llm.config
        self.catalog = llm.catalog
        self.predictor = llm.predictor
        self.planner: Planner = llm.planner

    async def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        chat: bool | None = None,
    ) -> list[RequestOutput]:
        """Return the responses to each prompt, as LLM.generate."""
        return await self._all(self.planner.generations(prompts, params, chat))

    async def chat(
        self,
        conversations: Sequence[Message] | Sequence[Sequence[Message]],
        params: SamplingParams | None = None,
    ) -> list[RequestOutput]:
        """Return the responses to each conversation, as LLM.chat."""
        return await self._all(self.planner.conversations(conversations, params))

    async def score(
        self,
        prompts: Prompt | Sequence[Prompt],
        responses: Prompt | Sequence[Prompt],
        params: ScoringParams | None = None,
        *,
        chat: bool | None = None,
    ) -> list[RequestOutput]:
        """Return the score of each response, as LLM.score."""
        return await self._all(self.planner.scores(prompts, responses, params, chat))

    async def rank(
        self,
        prompt: Prompt,
        candidates: Sequence[Prompt],
        params: ScoringParams | None = None,
        *,
        chat: bool | None = None,
    ) -> RequestOutput:
        """Return the candidates, likeliest first, as LLM.rank."""
        return await self.run(
            self.planner.rank(prompt, candidates, params or ScoringParams(), chat)
        )

    async def run(self, plan: Plan[RequestOutput]) -> RequestOutput:
        """Return what comes of one of the planner's plans."""
        answer, _ = await asyncio.wrap_future(self.engine.submit(plan))
        return answer

    async def stream(
        self, plan: Plan[RequestOutput]
    ) -> AsyncGenerator[CanvasUpdate | RequestOutput, None]:
        """Yield what each denoising step of one of the planner's plans commits, and last its
        answer.

        Leaving the iteration early ends the request.
        """
        loop = asyncio.get_running_loop()
        news: asyncio.Queue[Sequence[Read] | None] = asyncio.Queue()

        def tell(reads: Sequence[Read] | None) -> None:
            loop.call_soon_threadsafe(news.put_nowait, reads)

        future = asyncio.wrap_future(self.engine.submit(plan, tell))
        future.add_done_callback(lambda _: news.put_nowait(None))
        canvases = _Canvases(self.predictor)
        try:
            while (reads := await news.get()) is not None:
                for read in reads:
                    if (
                        read.canvas is not None
                        and (update := canvases.update(read, read.canvas)) is not None
                    ):
                        yield update
            answer, _ = await future
            yield answer
        finally:
            future.cancel()

    async def close(self, grace: float = 30.0) -> int:
        """Take no more requests, let those under way end, and fail what is left after `grace`
        seconds with ClosedError.

        Returns how many were left.
        """
        return await asyncio.to_thread(self.engine.close, grace)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _all(self, plans: Iterable[Plan[RequestOutput]]) -> list[RequestOutput]:
        """Return all answers, or raise the first request's error after the others are done; none
        runs on if cancelled.
        """
        tasks = [asyncio.ensure_future(self.run(plan)) for plan in plans]
        try:
            await asyncio.wait(tasks)
        finally:
            for task in tasks:
                task.cancel()
        return [task.result() for task in tasks]


class _Canvases:
    """The responses of one request as they were last seen."""

    def __init__(self, predictor: MaskPredictor) -> None:
        self._predictor = predictor
        self._last: dict[int, Ids] = {}

    def update(self, read: Read, canvas: Canvas) -> CanvasUpdate | None:
        """Return what a read's canvas shows that the one before did not; None if nothing."""
        mask_id, tokenizer = self._predictor.info.special.mask_id, self._predictor.tokenizer
        now = read.token_ids[canvas.start :]
        before = self._last.get(canvas.sample)
        self._last[canvas.sample] = now
        is_fresh = (
            before is None
            or len(before) != len(now)
            or bool(((before != mask_id) & (before != now)).any())
        )
        is_new = (
            now != mask_id if is_fresh or before is None else (now != mask_id) & (before == mask_id)
        )
        places = np.flatnonzero(is_new)
        if len(places) == 0 and not is_fresh:
            return None
        masked = np.flatnonzero(now == mask_id)
        written = now[: masked[0]] if len(masked) else now
        committed = tuple(
            (int(place), int(now[place]), tokenizer.token_text(int(now[place]))) for place in places
        )
        return CanvasUpdate(canvas.sample, committed, len(now), tokenizer.decode(written), is_fresh)
