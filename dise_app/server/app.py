"""The server's routes: OpenAI's completions and decisions, System One's decisions, and our own for
scoring and ranking.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response, StreamingResponse
from fastapi.staticfiles import StaticFiles
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from dise_app.server import answers, errors, strategies
from dise_app.server.decisions import DecisionRequest, SystemOneRequest, openai_body, systemone_body
from dise_app.server.errors import ServerError
from dise_app.server.guard import Guard
from dise_app.server.hosts import Hosts
from dise_app.server.limits import Limits
from dise_app.server.metrics import Metrics
from dise_app.server.schemas import (
    ChatRequest,
    Completion,
    CompletionRequest,
    RankRequest,
    ScoreRequest,
)
from dise_app.server.streaming import stream
from dise_app.server.strict import StrictRoute
from dise_core import AsyncLLM, CanvasUpdate, DecisionOutput, RequestOutput, SamplingParams
from dise_core.errors import DiseError
from dise_core.records import Record

T = TypeVar("T")
Answered = TypeVar("Answered", RequestOutput, DecisionOutput)

PAGE = Path(__file__).parent / "page"

POLICY = (
    "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'self'"
)
"""The page's content security policy: it may load its own files only."""

log = logging.getLogger("dise.server")


class Service:
    """The loaded model behind the routes."""

    def __init__(self, llm: AsyncLLM, limits: Limits) -> None:
        self.llm = llm
        self.limits = limits
        self.metrics = Metrics(llm.engine)
        self.started = int(time.time())

    @property
    def model(self) -> str:
        """The model's name, as clients give it."""
        return self.llm.predictor.info.name

    def check_model(self, name: str | None) -> None:
        """Raise ServerError 404 unless the name is the loaded model's, or None."""
        if name not in (None, self.model):
            raise ServerError(
                404, f"no model {name!r} here, only {self.model!r}", "model", "model_not_found"
            )

    def sampling(self, body: Completion, logprobs: int) -> SamplingParams:
        """Return the checked parameters of a completion. Raises ServerError for another model or
        for more tokens than the server allows.
        """
        self.check_model(body.model)
        params = body.params(logprobs)
        most = self.limits.max_tokens_limit
        if params.max_tokens > most:
            raise ServerError(
                400, f"max_tokens={params.max_tokens} is above the server's {most}", "max_tokens"
            )
        return params

    async def run(self, work: Awaitable[list[Answered]], request: Request) -> list[Answered]:
        """Return the awaited answers and count them; cancel them if they take too long or the
        client disconnects. Raises what unless_gone raises.
        """
        results = await unless_gone(work, request, self.limits.timeout)
        for answer in results:
            self.metrics.count(answer)
        return results


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


def create_app(
    llm: AsyncLLM,
    limits: Limits | None = None,
    api_key: str | None = None,
    hosts: Hosts | None = None,
) -> FastAPI:
    """Return the server as an ASGI application, which closes the model when it shuts down."""
    limits = limits or Limits()
    service = Service(llm, limits)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await llm.close(0)

    app = FastAPI(title="DiSE", docs_url=None, redoc_url=None, lifespan=lifespan)
    app.router.route_class = StrictRoute
    app.add_middleware(Guard, metrics=service.metrics, api_key=api_key, limits=limits, hosts=hosts)
    _add_errors(app)
    _add_facts(app, service)
    _add_completions(app, service)
    _add_scores(app, service)
    _add_decisions(app, service)
    app.include_router(strategies.router(lambda: llm, limits))
    app.mount("/page", StaticFiles(directory=PAGE), name="page")
    return app


def _add_errors(app: FastAPI) -> None:
    async def handle(_: Request, error: Exception) -> Response:
        return errors.answer(error)

    async def handle_bug(_: Request, error: Exception) -> Response:
        log.error("a request failed", exc_info=error)
        return errors.answer(error)

    known = (
        DiseError,
        ServerError,
        TimeoutError,
        ValidationError,
        RequestValidationError,
        HTTPException,
    )
    for kind in known:
        app.add_exception_handler(kind, handle)
    app.add_exception_handler(Exception, handle_bug)


def _add_facts(app: FastAPI, service: Service) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(PAGE / "index.html", headers={"Content-Security-Policy": POLICY})

    @app.get("/health")
    async def health() -> Response:
        engine, calibration = service.llm.engine, service.llm.planner.calibration
        facts = {
            "status": "ok" if engine.death is None else f"dead: {engine.death}",
            "model": service.model,
            "block_length": service.llm.predictor.info.block_length,
            "calibrated_selector": None if calibration is None else calibration.selector,
            "running": engine.num_running,
            "waiting": engine.num_waiting,
        }
        return JSONResponse(facts, 200 if engine.death is None else 503)

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        return Response(
            service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    @app.get("/v1/models")
    async def models() -> Record:
        facts = {
            "owned_by": "dise",
            "created": service.started,
            "max_model_len": service.llm.predictor.info.max_length,
        }
        return {"object": "list", "data": [{"id": service.model, "object": "model", **facts}]}


def _add_completions(app: FastAPI, service: Service) -> None:
    llm = service.llm

    @app.post("/v1/completions")
    async def completions(body: CompletionRequest, request: Request) -> Response:
        params = service.sampling(body, body.logprobs or 0)
        envelope = answers.Envelope("text_completion", service.model)
        if body.stream:
            if len(body.prompts) > 1:
                raise ServerError(400, "stream takes one prompt; send several requests", "stream")
            events = llm.stream(body.prompts[0], params, chat=False)
            return await streamed(events, envelope, params, body, body.logprobs)
        results = await service.run(llm.generate(body.prompts, params, chat=False), request)
        return JSONResponse(envelope.whole(results, body.logprobs))

    @app.post("/v1/chat/completions")
    async def chat_completions(body: ChatRequest, request: Request) -> Response:
        logprobs = (body.top_logprobs or 0) if body.logprobs else None
        params = service.sampling(body, logprobs or 0)
        messages = [message.plain() for message in body.messages]
        envelope = answers.Envelope("chat.completion", service.model)
        if body.stream:
            return await streamed(llm.stream(messages, params), envelope, params, body, logprobs)
        results = await service.run(llm.chat(messages, params), request)
        return JSONResponse(envelope.whole(results, logprobs))

    async def streamed(
        events: AsyncGenerator[CanvasUpdate | RequestOutput, None],
        envelope: answers.Envelope,
        params: SamplingParams,
        body: Completion,
        logprobs: int | None,
    ) -> Response:
        limit, count = service.limits.timeout, service.metrics.count
        chunks = stream(events, envelope, params, body, logprobs, count, limit)
        lines = _lines(await anext(chunks), chunks)
        return StreamingResponse(
            lines, media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )


async def _lines(first: Record, rest: AsyncGenerator[Record, None]) -> AsyncIterator[str]:
    """Yield server-sent events. After an error, which is sent as an event, only [DONE] follows."""
    yield _line(first)
    async with aclosing(rest) as events:
        try:
            async for event in events:
                yield _line(event)
        except (DiseError, TimeoutError) as error:
            yield _line(errors.in_stream(error))
    yield "data: [DONE]\n\n"


def _line(event: Record) -> str:
    return f"data: {json.dumps(event, ensure_ascii=False, allow_nan=False)}\n\n"


def _add_scores(app: FastAPI, service: Service) -> None:
    llm = service.llm

    @app.post("/v1/score")
    async def score(body: ScoreRequest, request: Request) -> Record:
        service.check_model(body.model)
        prompts = [body.prompt] * len(body.responses)
        work = llm.score(prompts, body.responses, body.params, chat=body.chat)
        results = await service.run(work, request)
        data = [
            answer.to_dict()["outputs"][0] | {"index": index}
            for index, answer in enumerate(results)
        ]
        return _listed(data, results)

    @app.post("/v1/rank")
    async def rank(body: RankRequest, request: Request) -> Record:
        service.check_model(body.model)
        work = llm.rank([body.prompt], [body.candidates], body.params, chat=body.chat)
        [answer] = await service.run(work, request)
        return _listed(answer.to_dict()["outputs"], [answer])

    def _listed(data: list[Record], results: Sequence[RequestOutput]) -> Record:
        return {
            "object": "list",
            "model": service.model,
            "data": data,
            "usage": answers.usage(results),
            "dise": answers.cost(results),
        }


def _add_decisions(app: FastAPI, service: Service) -> None:
    llm = service.llm

    @app.post("/v1/decisions")
    async def decisions(body: DecisionRequest, request: Request) -> Record:
        service.check_model(body.model)
        work = llm.decide([body.given], body.questions, body.dise)
        [output] = await service.run(work, request)
        return openai_body(output)

    @app.post("/v1/systemone")
    async def systemone(body: SystemOneRequest, request: Request) -> Record:
        service.check_model(body.model)
        work = llm.decide([body.given], body.asked, body.params)
        [output] = await service.run(work, request)
        return systemone_body(body, output)
