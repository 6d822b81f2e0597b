"""The entry point in the group vllm.endpoint_plugins: POST /v1/dise/read on a stock vLLM
server.

All bounds are checked here: a bad position or token id that reached the engine would stop
it for every client.
"""

import asyncio
import base64
import uuid
from argparse import Namespace
from typing import Annotated, Any, ClassVar

import numpy as np
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dise_adapters.vllm.inside.pooler import pooling_params
from dise_adapters.vllm.wire import (
    MAX_NUMBERS,
    MAX_READS,
    TASK,
    KnownIds,
    ReadJson,
    checksum,
    num_numbers,
)
from dise_core import Distribution, InputError, PlanError
from dise_core.params.base import input_error

MAX_ROWS = 1024
"""The most texts in one request."""

MAX_BODY_BYTES = 64 * 2**20


class RowBody(BaseModel):
    """One text and the Reads of it."""

    model_config = ConfigDict(extra="forbid")

    token_ids: Annotated[KnownIds, Field(min_length=1)]
    reads: list[ReadJson] = Field(min_length=1, max_length=MAX_READS)


class ReadBody(BaseModel):
    """The body of POST /v1/dise/read."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = None
    rows: list[RowBody] = Field(min_length=1, max_length=MAX_ROWS)


class DiseEndpoint:
    """Adds the route to vLLM's server. vLLM calls both methods once."""

    name = "dise_http"
    required_tasks: ClassVar[tuple[str, ...]] = (TASK,)

    def attach_router(self, app: FastAPI) -> None:
        @app.post("/v1/dise/read")
        async def read(request: Request) -> JSONResponse:
            service: ReadService = request.app.state.dise
            try:
                body = await service.body_of(request)
                checksums = [checksum(row.token_ids) for row in body.rows]
                return JSONResponse({"rows": await service.read(body), "checksums": checksums})
            except ValidationError as error:
                problem, status = input_error(error), 400
            except InputError as error:
                problem, status = error, 404 if error.parameter == "model" else 400
            refusal = {"message": str(problem), "type": "invalid_request_error", "code": status}
            return JSONResponse({"error": refusal}, status)

    async def init_state(self, engine_client: Any, state: Any, args: Namespace) -> None:
        names = args.served_model_name or [args.model]
        state.dise = ReadService(engine_client, [names] if isinstance(names, str) else list(names))


class ReadService:
    """Checks a request and submits all its texts to the engine at once."""

    def __init__(self, engine_client: Any, names: list[str]) -> None:
        config = engine_client.model_config
        self._client, self._names = engine_client, names
        self._vocab_size = int(config.get_vocab_size())
        self._max_length = int(config.max_model_len)

    async def body_of(self, request: Request) -> ReadBody:
        """Return the checked body. Raises ValidationError if it is malformed, InputError
        if it is too large, names another model or asks for what cannot be answered.
        """
        received = bytearray()
        async for chunk in request.stream():
            received += chunk
            if len(received) > MAX_BODY_BYTES:
                raise InputError(f"the body is larger than {MAX_BODY_BYTES} bytes; send fewer rows")
        body = ReadBody.model_validate_json(bytes(received), context=self._vocab_size)
        if body.model is not None and body.model not in self._names:
            raise InputError(
                f"there is no model {body.model!r}; this server has {', '.join(self._names)}",
                "model",
            )
        total = 0
        for number, row in enumerate(body.rows):
            try:
                total += self._checked_size(row)
            except (InputError, PlanError) as error:
                raise InputError(f"rows.{number}: {error}", "rows") from error
        if total > MAX_NUMBERS:
            raise InputError(
                f"the answer would hold {total} numbers, at most {MAX_NUMBERS} are sent; ask for "
                "fewer rows, positions or tokens",
                "rows",
            )
        return body

    async def read(self, body: ReadBody) -> list[str]:
        """Return each text's packed answer: little-endian float32 in base64."""
        tasks = [asyncio.create_task(self._answer(row)) for row in body.rows]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    async def _answer(self, row: RowBody) -> str:
        prompt = {"prompt_token_ids": row.token_ids.tolist()}
        params, name = pooling_params(row.reads), f"dise-{uuid.uuid4().hex}"
        data = np.zeros(0, np.float32)
        async for output in self._client.encode(prompt, params, name):
            data = output.outputs.data.numpy()
        return base64.b64encode(np.ascontiguousarray(data, dtype="<f4").tobytes()).decode()

    def _checked_size(self, row: RowBody) -> int:
        length = len(row.token_ids)
        if length > self._max_length:
            raise InputError(
                f"a text of {length} tokens is longer than the model's limit of {self._max_length}"
            )
        if any(form.asks_for is Distribution for form in row.reads):
            raise InputError(
                "whole distributions do not travel over HTTP; analyze with the engine in process"
            )
        reads = [form.decoded(row.token_ids) for form in row.reads]
        return num_numbers(reads, self._vocab_size)
