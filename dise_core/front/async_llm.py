"""AsyncLLM: the LLM interface for programs that serve many callers at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Hashable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import replace
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, cast

from dise_core.constraints.turns import Builders
from dise_core.engine import AsyncEngine, Caller, Engine
from dise_core.engine.async_engine import CLOSED
from dise_core.errors import ClosedError, DiseError, InputError
from dise_core.front.in_memory import FromModel, Model
from dise_core.front.llm import LLM, EngineOptions
from dise_core.front.outputs import RequestOutput
from dise_core.front.planner import Planner
from dise_core.front.resolved import Preparable, Preparation
from dise_core.front.verbs import Job, Verbs, request
from dise_core.models.predictor import MaskPredictor, Shown, unshown
from dise_core.models.prompts import Prompt
from dise_core.models.tokenizer import FunctionTool, Message
from dise_core.plans.outcome import Budget, Outcome
from dise_core.plans.plan import Plan
from dise_core.plans.reading import Read
from dise_core.plugins.catalog import Catalog
from dise_core.records import Fields
from dise_core.writing.canvas import CanvasStream, CanvasUpdate

P = ParamSpec("P")
T = TypeVar("T")

MAX_NEWS = 256
"""Steps of a stream that wait for whoever takes them; later ones are told by the next that fits."""


def awaited(
    verb: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[AsyncLLM, P], Coroutine[Any, Any, T]]:
    """Return one of LLM's verbs as a coroutine of AsyncLLM, whose `do` is one too."""

    @wraps(verb)
    async def coroutine(llm: AsyncLLM, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await cast("Coroutine[Any, Any, T]", verb(llm, *args, **kwargs))

    return coroutine


class AsyncLLM(FromModel):
    """A loaded model with LLM's methods as coroutines; requests of all callers share
    batches.

    Cancelling a caller, for example by a timeout, ends its request before the next
    forward pass.

    Examples:
        >>> async with AsyncLLM("countdown") as llm:
        ...     async with asyncio.timeout(10):
        ...         [answer] = await llm.generate("83,18,75 -> 10", SamplingParams(max_tokens=48))
    """

    def __init__(
        self,
        model: Model = "countdown",
        *,
        judge: Model | None = None,
        catalog: Catalog | None = None,
        plugins: Sequence[object] = (),
        max_waiting: int = 1024,
        budget: Budget | None = None,
        shown: Shown = unshown,
        **options: Unpack[EngineOptions],
    ) -> None:
        """Load the models as LLM does and start the engine's thread.

        At most max_waiting requests queue; beyond that each method raises
        OverloadedError, and a call of more texts InputError. After `close` each raises
        ClosedError. budget: of one call; beyond it InputError. shown: shows how the
        weights are loaded.
        """
        loaded: list[LLM] = []

        def load() -> Engine:
            llm = LLM(model, judge=judge, catalog=catalog, plugins=plugins, shown=shown, **options)
            loaded.append(llm)
            return loaded[0].engine

        self.budget = budget or Budget()
        self.engine = AsyncEngine(load, max_waiting)
        [self._llm] = loaded
        self.config = self._llm.config
        self.catalog = self._llm.catalog
        self._builders = Builders()
        self._readers = ThreadPoolExecutor(2)  # of what takes a moment, off the event loop

    def __repr__(self) -> str:
        return f"Async{self._llm!r}"

    @property
    def planner(self) -> Planner:
        """What makes plans of requests."""
        return self._llm.planner

    @property
    def predictor(self) -> MaskPredictor:
        """The model that writes."""
        return self._llm.predictor

    generate = awaited(Verbs.generate)
    chat = awaited(Verbs.chat)
    fill = awaited(Verbs.fill)
    score = awaited(Verbs.score)
    rank = awaited(Verbs.rank)

    async def do(self, job: Job[T]) -> T:
        """Return what a job makes of its plans once all have ended; cancelling it cancels
        all.
        Raises InputError for more plans than may wait, which no later try would mend.
        """
        num_texts, max_texts = len(job.plans), self.engine.max_waiting
        if num_texts > max_texts:
            raise InputError(
                f"this request has {num_texts} texts, more than the {max_texts} that may wait at a "
                "time (--max-waiting): send it in parts"
            )
        await self.prepare(job.prepared)
        async with aclosing(self.run(job.plans)) as outcomes:
            return job.finish([outcome async for outcome in outcomes])

    async def prepare(self, requests: Sequence[Preparation], caller: Hashable = None) -> None:
        """Build the requests' constraints, which their plans then use, while the engine
        goes on.
        Raises what the requests would raise. caller: with whom others take turns.
        """
        caller = object() if caller is None else caller
        for prepared in requests:
            if prepared.asked.constraint is not None and prepared.tokens is None:
                await self._build(prepared, caller)

    async def _build(self, prepared: Preparation, caller: Hashable) -> None:
        order = await self._read(lambda: prepared.order)
        assert order is not None, "a request that names a constraint orders it"
        tokens = order.kept()
        if tokens is None:
            tokens = await _unless_closed(self._builders.submit(order, caller))
        prepared.tokens = tokens
        await self._read(lambda: prepared.constraint)

    async def _read(self, work: Callable[[], T]) -> T:
        try:
            future = self._readers.submit(work)
        except RuntimeError:
            raise ClosedError(CLOSED) from None
        return await _unless_closed(future)

    async def run(self, plans: Iterable[Plan[T]]) -> AsyncGenerator[Outcome[T], None]:
        """Yield the outcome of each plan as it ends. All are submitted at once, so those
        beyond max_waiting end with OverloadedError. Leaving the iteration early cancels
        the rest.
        """
        caller = Caller(self.budget)
        tasks = [
            asyncio.ensure_future(self._outcome(index, plan, caller))
            for index, plan in enumerate(plans)
        ]
        try:
            for ended in asyncio.as_completed(tasks):
                yield await ended
        finally:
            for task in tasks:
                task.cancel()

    async def stream(
        self,
        prompt: Prompt | Sequence[Message],
        params: Preparable | None = None,
        *,
        chat: bool | None = None,
        suffix: Prompt | None = None,
        tools: Sequence[FunctionTool] = (),
        chat_template_kwargs: Fields | None = None,
    ) -> AsyncGenerator[CanvasUpdate | RequestOutput, None]:
        """Yield as LLM.stream does, fewer updates where they are taken late. Leaving the
        iteration early cancels the request.
        """
        checked = self.planner.prepared(params, suffix is not None)
        await self.prepare([checked])
        loop = asyncio.get_running_loop()
        news: asyncio.Queue[Sequence[Read] | None] = asyncio.Queue()

        def add(reads: Sequence[Read]) -> None:
            if news.qsize() < MAX_NEWS:
                news.put_nowait(reads)

        def tell(reads: Sequence[Read]) -> None:
            # Those that wait must not hold what the texts cached.
            reads = [replace(read, cache=None) for read in reads if read.canvas is not None]
            loop.call_soon_threadsafe(add, reads)

        more = suffix, tools, chat_template_kwargs
        plan = request(self.planner, prompt, checked, chat, *more)
        future = asyncio.wrap_future(self.engine.submit(plan, tell, Caller(self.budget)))
        future.add_done_callback(lambda _: news.put_nowait(None))
        canvases = CanvasStream(self.predictor)
        try:
            while (reads := await news.get()) is not None:
                for update in canvases.updates(reads):
                    yield update
            answer, _ = await future
            yield answer
        finally:
            future.cancel()

    async def update_weights(self, weights: Iterable[tuple[str, Any]]) -> None:
        """Update the weights as LLM does, between two steps of the engine."""
        update = partial(self._llm.update_weights, list(weights))
        await asyncio.wrap_future(self.engine.call(update))

    async def close(self, grace: float = 30.0) -> int:
        """Refuse new requests, wait `grace` seconds, fail the unfinished with
        ClosedError, then free the models. Returns how many were unfinished.
        """
        self._builders.close()
        self._readers.shutdown(wait=False, cancel_futures=True)
        num_unfinished = await asyncio.to_thread(self.engine.close, grace)
        self._llm.close()
        return num_unfinished

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _outcome(self, index: int, plan: Plan[T], caller: Caller) -> Outcome[T]:
        started = time.perf_counter()
        try:
            answer, seconds = await asyncio.wrap_future(self.engine.submit(plan, caller=caller))
        except DiseError as error:
            return Outcome(index, None, error, time.perf_counter() - started)
        return Outcome(index, answer, None, seconds)


async def _unless_closed(future: Future[T]) -> T:
    """Return a future's result; ClosedError where `close` has cancelled it."""
    task = asyncio.current_task()
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        if task is None or task.cancelling():
            raise
        raise ClosedError(CLOSED) from None
