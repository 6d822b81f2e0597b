"""The loaded model behind the routes, and what every request is checked against."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterable
from contextlib import aclosing
from typing import TypeVar

from fastapi import Request

from dise_app.server.defaults import Defaults
from dise_app.server.errors import ServerError
from dise_app.server.limits import Limits
from dise_app.server.metrics import Metrics
from dise_app.server.schemas import Scored, Written
from dise_core import AsyncLLM, DecisionOutput, RequestOutput, SamplingParams, ScoringParams
from dise_core.outcomes import results
from dise_core.reading import Plan

T = TypeVar("T")
Answered = TypeVar("Answered", RequestOutput, DecisionOutput)


class Service:
    """The model, once it is loaded, its names, and the server's limits."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.defaults = Defaults(limits.default)
        self.metrics = Metrics(lambda: None if self._llm is None else self._llm.engine)
        self.started = int(time.time())
        self._llm: AsyncLLM | None = None

    def begin(self, llm: AsyncLLM) -> None:
        """Answer with this model from now on. Raises InputError for defaults that it refuses."""
        self.defaults.check(llm.catalog)
        self._llm = llm

    @property
    def is_loaded(self) -> bool:
        return self._llm is not None

    @property
    def llm(self) -> AsyncLLM:
        """The model. Raises ServerError 503 while it is being loaded."""
        if self._llm is None:
            raise loading()
        return self._llm

    async def close(self, grace: float) -> int:
        """Close the model, if there is one; return how many requests were cut off."""
        return 0 if self._llm is None else await self._llm.close(grace)

    @property
    def names(self) -> tuple[str, ...]:
        """What clients may call the model."""
        return self.limits.served_model_name or (self.llm.predictor.info.name,)

    @property
    def model(self) -> str:
        """The model's name in answers."""
        return self.names[0]

    def check_model(self, name: str | None) -> None:
        """Raise ServerError 404 unless the name is one of the model's, or None."""
        if name is not None and name not in self.names:
            known = ", ".join(map(repr, self.names))
            raise ServerError(
                404, f"no model {name!r:.200} here, only {known}", "model", "model_not_found"
            )

    def check_chat(self) -> None:
        """Raise ServerError 400 for a model that has no chat template."""
        if not self.llm.predictor.tokenizer.has_chat_template:
            raise ServerError(
                400,
                f"model {self.model!r} has no chat template; give the prompt as one text, to POST "
                "/v1/completions",
                "messages",
            )

    def sampling(self, body: Written, logprobs: int) -> SamplingParams:
        """Return the checked parameters of an answer. Raises ServerError for another model or for
        more tokens than the server allows, ValidationError for values that the library refuses.
        """
        self.check_model(body.model)
        asked = self.defaults.applied(body.settings, SamplingParams.model_fields)
        params = SamplingParams.model_validate({**asked, "logprobs": logprobs})
        most = self.limits.max_tokens_limit
        if params.max_tokens > most:
            raise ServerError(
                400, f"max_tokens={params.max_tokens} is above the server's {most}", "max_tokens"
            )
        return params

    def scoring(self, body: Scored) -> ScoringParams:
        """Return the checked parameters of a score. Raises what `sampling` raises."""
        self.check_model(body.model)
        asked = self.defaults.applied(body.settings, ScoringParams.model_fields)
        return ScoringParams.model_validate(asked)

    async def run(self, work: Awaitable[list[Answered]], request: Request) -> list[Answered]:
        """Return the awaited answers and count them; cancel them if they take too long or the
        client disconnects. Raises what unless_gone raises.
        """
        answers = await unless_gone(work, request, self.limits.timeout)
        for answer in answers:
            self.metrics.count(answer)
        return answers

    async def results(self, plans: Iterable[Plan[T]]) -> list[T]:
        """Return the results of plans, which are one caller's. Raises the first one's error once
        all have ended.
        """
        async with aclosing(self.llm.run(plans)) as outcomes:
            return results([outcome async for outcome in outcomes])


def loading() -> ServerError:
    """Return the refusal of a request that comes before the model is loaded."""
    return ServerError(503, "the model is still being loaded; try again later", code="loading")


async def unless_gone(work: Awaitable[T], request: Request, timeout: float) -> T:
    """Return what is awaited; cancel it and raise ServerError 499 if the client disconnects,
    TimeoutError after `timeout` seconds.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({task, gone}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ServerError(499, "the client went away") if gone.done() else TimeoutError
    finally:
        task.cancel()
        gone.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
