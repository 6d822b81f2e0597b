"""The loaded model behind the routes, and what every request is checked against."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fastapi import Request
from fastapi.responses import JSONResponse

from dise_app.server.choices import confidence_headers
from dise_app.server.errors import ServerError
from dise_app.server.limits import Defaults, Limits
from dise_app.server.metrics import Costed, Metrics
from dise_app.server.schemas.requests import ScoringRequest, WritingRequest, max_tokens_of
from dise_core import AsyncLLM, CompletionOutput, InputError, SamplingParams, ScoringParams
from dise_core.front.resolved import Preparation
from dise_core.params.base import Params
from dise_core.params.objects import name_of
from dise_core.records import Fields

P = TypeVar("P", bound=Params)
T = TypeVar("T")
Counted = TypeVar("Counted", bound=Costed)


class Service:
    """The model, once it is loaded, its names, and the server's limits."""

    def __init__(
        self, limits: Limits, llm: AsyncLLM | None = None, options: Fields | None = None
    ) -> None:
        """options: values that the operator set for plugins' routes."""
        self.limits = limits
        self._options = options or {}
        self.defaults = Defaults(limits.default)
        self.metrics = Metrics(lambda: None if self._llm is None else self._llm.engine)
        self.started = int(time.time())
        self._llm: AsyncLLM | None = None
        if llm is not None:
            self.begin(llm)

    def begin(self, llm: AsyncLLM) -> None:
        """Answer with this model. Raises InputError for what is no AsyncLLM, and for
        defaults that it refuses.
        """
        if not isinstance(llm, AsyncLLM):
            raise InputError(
                f"A server answers with an AsyncLLM, and {llm!r:.80} is none: make "
                "AsyncLLM(...) with the same arguments.",
                "model",
            )
        llm.planner.check(self.defaults.params)
        self._llm = llm

    def options(self, cls: type[P]) -> P:
        """Return what the operator set of a plugin's options."""
        return cls(
            **{name: self._options[name] for name in self._options.keys() & cls.model_fields}
        )

    @property
    def is_loaded(self) -> bool:
        """Whether there is a model to answer with."""
        return self._llm is not None

    @property
    def llm(self) -> AsyncLLM:
        """The model. Raises ServerError 503 while it is being loaded."""
        if self._llm is None:
            raise ServerError(
                503, "the model is still being loaded; try again later", code="loading"
            )
        return self._llm

    async def drain(self, grace: float) -> int:
        """End the requests within `grace` seconds. Return how many were cut off."""
        return 0 if self._llm is None else await asyncio.to_thread(self._llm.engine.close, grace)

    async def close(self) -> None:
        """Free the model, if there is one, once all answers are on their way."""
        if self._llm is not None:
            await self._llm.close(0)

    @property
    def names(self) -> tuple[str, ...]:
        """What clients may call the model."""
        return self.limits.served_model_name or (self.llm.predictor.info.name,)

    @property
    def model(self) -> str:
        """What answers call the model."""
        return self.names[0]

    def check_model(self, name: str | None) -> None:
        """Raise ServerError 404 unless the name is one of the model's, or None."""
        if name is not None and name not in self.names:
            raise ServerError(
                404,
                f"no model {name!r:.200} here, only {', '.join(map(repr, self.names))}",
                "model",
                "model_not_found",
            )

    def check_chat(self) -> None:
        """Raise ServerError 400 for a model without a chat template."""
        if not self.llm.predictor.tokenizer.has_chat_template:
            raise ServerError(
                400,
                f"model {self.model!r} has no chat template; give the prompt as one text, "
                "to POST /v1/completions",
                "messages",
            )

    async def sampling(self, body: WritingRequest, request: Request) -> Preparation:
        """Return the checked parameters of an answer, with its constraint. Raises
        ServerError for another model, for more tokens than the server allows and for what
        the answer cannot be, ValidationError for values that the library refuses.
        """
        self.check_model(body.model)
        if body.rid is not None:
            request.scope.setdefault("dise.id", body.rid)
        settings = self.defaults.complete(body.settings, SamplingParams.model_fields)
        params = SamplingParams.model_validate({**settings, "logprobs": body.shown_logprobs or 0})
        if params.max_tokens > self.limits.max_tokens_limit:
            raise ServerError(
                400,
                f"max_tokens={params.max_tokens} is above the server's "
                f"{self.limits.max_tokens_limit}",
                "max_tokens",
            )
        controller = self.llm.catalog.length_controller(
            name_of(params.length or "fixed"), params.length_settings
        )
        length = controller.longest(params.max_tokens)
        num_tokens = params.n * (body.num_prompts * length + body.num_echoed)
        self._check_size(num_tokens, params.logprobs)
        prepared = self.llm.planner.prepared(params, body.is_gap)
        try:
            work = self.llm.prepare([prepared], caller_of(request))
            await unless_gone(work, request, self.limits.timeout)
        except InputError as error:
            field, (_, settings) = body.form or (None, ("", {}))
            parameter = (error.parameter or "").split(".")[0]
            if field is None or parameter not in {"constraint", *settings}:
                raise
            raise ServerError(400, str(error), field) from error
        return prepared

    def scoring(self, body: ScoringRequest) -> ScoringParams:
        """Return the checked parameters of a score. Raises as `sampling` does."""
        self.check_model(body.model)
        settings = self.defaults.complete(body.settings, ScoringParams.model_fields)
        params = ScoringParams.model_validate(settings)
        self._check_size(max_tokens_of(body.texts), params.logprobs)
        return params

    def _check_size(self, num_tokens: int, num_likeliest: int | None) -> None:
        count = 0 if num_likeliest is None else num_tokens * (2 + num_likeliest)
        if count > (limit := self.limits.max_answer_logprobs):
            raise ServerError(
                400,
                f"the answer could hold {count} log-probabilities, more than {limit}; "
                "ask for fewer or shorter texts or fewer logprobs (for scores alone: null)",
                "logprobs",
            )

    async def run(self, work: Awaitable[list[Counted]], request: Request) -> list[Counted]:
        """Return the awaited answers, and count them. Raises what unless_gone raises."""
        answers = await unless_gone(work, request, self.limits.timeout)
        for answer in answers:
            self.metrics.count(answer)
        return answers


def caller_of(request: Request) -> tuple[str, bytes | None]:
    """Return who takes turns: an address, and the key's digest if one is needed."""
    host = "" if request.client is None else request.client.host
    return host, request.scope.get("dise.key")


async def written_out(
    body: Callable[[], object], first: CompletionOutput | None = None
) -> JSONResponse:
    """Return a body as a response, made in a thread: a large one takes a second. first:
    the choice of which headers tell, too.
    """
    headers = None if first is None else confidence_headers(first)
    return await asyncio.to_thread(lambda: JSONResponse(body(), headers=headers))


async def unless_gone(work: Awaitable[T], request: Request, timeout: float) -> T:
    """Return the result. Raises ServerError 499 if the client leaves, or TimeoutError."""
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
