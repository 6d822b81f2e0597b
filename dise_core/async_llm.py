"""AsyncLLM: the LLM interface for programs that serve many callers at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from os import PathLike
from typing import Self, TypeVar, Unpack, overload

from dise_core import asking
from dise_core.canvas import Canvases, CanvasUpdate
from dise_core.catalog import Catalog
from dise_core.decisions import DecisionOutput
from dise_core.engine import AsyncEngine, Budget, Caller, Engine, Outcome
from dise_core.engine_options import EngineOptions
from dise_core.errors import DiseError
from dise_core.given import is_one, several
from dise_core.llm import LLM
from dise_core.model import MaskPredictor
from dise_core.outcomes import OnError, answers, check_on_error, results
from dise_core.outputs import RequestOutput
from dise_core.params import SamplingParams
from dise_core.planner import Planner
from dise_core.prompts import Message, Prompt
from dise_core.reading import Plan, Read

T = TypeVar("T")


class AsyncLLM:
    """A loaded model with LLM's methods as coroutines; requests of all callers share batches.

    Cancelling a caller, for example by a timeout, ends its request before the next forward pass.

    Examples:
        >>> async with AsyncLLM("countdown") as llm:
        ...     async with asyncio.timeout(10):
        ...         [answer] = await llm.generate("83,18,75 -> 10", SamplingParams(max_tokens=48))
    """

    def __init__(
        self,
        model: str | PathLike[str] | MaskPredictor = "countdown",
        *,
        judge: str | PathLike[str] | MaskPredictor | None = None,
        catalog: Catalog | None = None,
        max_waiting: int = 1024,
        budget: Budget | None = None,
        **options: Unpack[EngineOptions],
    ) -> None:
        """Load the models as LLM does and start the engine's thread.

        At most max_waiting requests queue; beyond that each method raises OverloadedError. After
        `close` each raises ClosedError. budget: what one call may cost; a call that goes beyond it
        raises InputError.
        """
        loaded: list[LLM] = []

        def load() -> Engine:
            loaded.append(LLM(model, judge=judge, catalog=catalog, **options))
            return loaded[0].engine

        self.budget = budget or Budget()
        self.engine = AsyncEngine(load, max_waiting)
        [self._llm] = loaded
        self.config = self._llm.config
        self.catalog = self._llm.catalog

    def __repr__(self) -> str:
        return f"Async{self._llm!r}"

    @property
    def planner(self) -> Planner:
        """What turns requests into plans for `run`."""
        return self._llm.planner

    @property
    def predictor(self) -> MaskPredictor:
        """The loaded model."""
        return self._llm.predictor

    async def generate(
        self,
        prompts: asking.Given,
        params: asking.Sampling = None,
        *,
        sampling_params: asking.Sampling = None,
        chat: asking.Chat = None,
        on_error: OnError = "raise",
    ) -> list[RequestOutput]:
        """Return the responses to each prompt, like LLM.generate."""
        its = asking.one_of_both(params, sampling_params)
        plans = self.planner.generations(prompts, its, chat)
        return await self._answers(plans, on_error, several(prompts, "prompt"))

    async def chat(
        self,
        conversations: Sequence[Message] | Sequence[Sequence[Message]],
        params: asking.Sampling = None,
        *,
        sampling_params: asking.Sampling = None,
        on_error: OnError = "raise",
    ) -> list[RequestOutput]:
        """Return the responses to each conversation, like LLM.chat."""
        its = asking.one_of_both(params, sampling_params)
        return await self._answers(self.planner.conversations(conversations, its), on_error)

    async def score(
        self,
        prompts: asking.Given,
        responses: asking.Given,
        params: asking.Scoring = None,
        *,
        chat: asking.Chat = None,
        finished: bool | None = None,
        on_error: OnError = "raise",
    ) -> list[RequestOutput]:
        """Return the score of each response, like LLM.score."""
        plans = self.planner.scores(prompts, responses, params, chat, finished)
        return await self._answers(plans, on_error, several(prompts, "prompt"))

    @overload
    async def rank(  # type: ignore[overload-overlap]
        self,
        prompts: Prompt,
        candidates: asking.Texts,
        params: asking.Scoring = None,
        *,
        chat: asking.Chat = None,
    ) -> RequestOutput: ...

    @overload
    async def rank(
        self,
        prompts: asking.Texts,
        candidates: asking.TextLists,
        params: asking.Scoring = None,
        *,
        chat: asking.Chat = None,
    ) -> list[RequestOutput]: ...

    async def rank(
        self,
        prompts: asking.Given,
        candidates: asking.Choices,
        params: asking.Scoring = None,
        *,
        chat: asking.Chat = None,
    ) -> RequestOutput | list[RequestOutput]:
        """Return one prompt's candidates, or each prompt's, likeliest first, like LLM.rank."""
        ranked = await self._all(asking.rankings(self.planner, prompts, candidates, params, chat))
        return ranked[0] if is_one(prompts) else ranked

    @overload
    async def decide(  # type: ignore[overload-overlap]
        self,
        given: asking.Asked,
        questions: asking.Questions,
        params: asking.Deciding = None,
        *,
        chat: asking.Chat = None,
    ) -> DecisionOutput: ...

    @overload
    async def decide(
        self,
        given: asking.AskedMany,
        questions: asking.Questions,
        params: asking.Deciding = None,
        *,
        chat: asking.Chat = None,
    ) -> list[DecisionOutput]: ...

    async def decide(
        self,
        given: asking.Inputs,
        questions: asking.Questions,
        params: asking.Deciding = None,
        *,
        chat: asking.Chat = None,
    ) -> DecisionOutput | list[DecisionOutput]:
        """Return the answers to the questions about one input, or about each, like LLM.decide."""
        decided = await self._all(asking.decisions(self.planner, given, questions, params, chat))
        return decided[0] if asking.is_one_input(given) else decided

    async def run(self, plans: Iterable[Plan[T]]) -> AsyncGenerator[Outcome[T], None]:
        """Yield the outcome of each of the planner's plans as it ends.

        Unlike LLM.run, this submits all plans at once, so those beyond max_waiting end with
        OverloadedError. Leaving the iteration early cancels the plans that are still running.
        """
        caller = Caller(self.budget)
        tasks = [asyncio.ensure_future(self._outcome(*each, caller)) for each in enumerate(plans)]
        try:
            for ended in asyncio.as_completed(tasks):
                yield await ended
        finally:
            for task in tasks:
                task.cancel()

    async def stream(
        self,
        prompt: Prompt | Sequence[Message],
        params: SamplingParams | None = None,
        *,
        chat: asking.Chat = None,
    ) -> AsyncGenerator[CanvasUpdate | RequestOutput, None]:
        """Yield what each denoising step commits, then the answer, like LLM.stream.

        Leaving the iteration early cancels the request.
        """
        loop = asyncio.get_running_loop()
        news: asyncio.Queue[Sequence[Read] | None] = asyncio.Queue()

        def tell(reads: Sequence[Read] | None) -> None:
            loop.call_soon_threadsafe(news.put_nowait, reads)

        plan = asking.request_plan(self.planner, prompt, params, chat)
        future = asyncio.wrap_future(self.engine.submit(plan, tell, Caller(self.budget)))
        future.add_done_callback(lambda _: news.put_nowait(None))
        canvases = Canvases(self.predictor)
        try:
            while (reads := await news.get()) is not None:
                for update in canvases.updates(reads):
                    yield update
            answer, _ = await future
            yield answer
        finally:
            future.cancel()

    async def close(self, grace: float = 30.0) -> int:
        """Refuse new requests, wait `grace` seconds, fail the unfinished with ClosedError, then
        free the models.

        Returns how many were unfinished.
        """
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

    async def _all(self, plans: Iterable[Plan[T]]) -> list[T]:
        """Return all answers, or raise the first request's error once all have ended.

        Cancelling it cancels all of them.
        """
        return results(await self._ended(plans))

    async def _answers(
        self, plans: list[Plan[RequestOutput]], on_error: OnError, prompts: Sequence[object] = ()
    ) -> list[RequestOutput]:
        check_on_error(on_error)
        name = self.predictor.info.name
        return answers(await self._ended(plans), on_error, name, prompts)

    async def _ended(self, plans: Iterable[Plan[T]]) -> list[Outcome[T]]:
        async with aclosing(self.run(plans)) as outcomes:
            return [outcome async for outcome in outcomes]
