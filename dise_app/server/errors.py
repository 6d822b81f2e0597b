"""Errors in OpenAI's format, each with its HTTP status."""

from __future__ import annotations

import re

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from dise_app.server.neutral import NOT_SUPPORTED
from dise_core.errors import ClosedError, DiseError, InputError, OverloadedError, TooLongError
from dise_core.params import UNKNOWN, input_error, place_of
from dise_core.records import Record

STATUSES: tuple[tuple[type[Exception], int, str | None], ...] = (
    (TooLongError, 400, "context_length_exceeded"),
    (InputError, 400, None),
    (OverloadedError, 429, "overloaded"),
    (ClosedError, 503, "shutting_down"),
    (TimeoutError, 504, "timeout"),
)
"""The library's errors with their status and OpenAI's code; the first match counts, 500 if there is
none.
"""

KIND = re.compile(r"str|int|bool|float|list\[.*\]|(function|constrained|tagged|is)-.*")
"""A member of a union among the names that pydantic gives for a place."""

UNSHOWN = {"missing", "extra_forbidden"}
"""Problems that are not the value's."""

Scalar = str | int | float | None


class ServerError(Exception):
    """A refusal by the server itself."""

    def __init__(
        self, status: int, message: str, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code


def answer(error: Exception) -> JSONResponse:
    """Return the HTTP response to a request that failed."""
    status, param, code = _facts(error)
    headers = {"Retry-After": "1"} if status in {429, 503} else {}
    if status == 408 or code == "bad_framing":
        headers["Connection"] = "close"
    return JSONResponse(body(error, status, param, code), status, headers=headers)


def body(error: Exception, status: int, param: str | None, code: str | None) -> Record:
    """Return OpenAI's error object."""
    kinds = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
    kind = kinds.get(status, "invalid_request_error" if status < 500 else "server_error")
    message = _message(error).encode("utf-8", "backslashreplace").decode()
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def in_stream(error: Exception) -> Record:
    """Return the error object for a stream that has begun, when its status is already sent."""
    return body(error, *_facts(error))


def _facts(error: Exception) -> tuple[int, str | None, str | None]:
    """Return the status, the parameter at fault, and OpenAI's code."""
    match error:
        case ServerError():
            return error.status, error.param, error.code
        case RequestValidationError() | ValidationError():
            return 400, _location(error), None
        case HTTPException():
            return error.status_code, None, None
    status, code = next(((s, c) for kind, s, c in STATUSES if isinstance(error, kind)), (500, None))
    return status, error.parameter if isinstance(error, InputError) else None, code


def _message(error: Exception) -> str:
    match error:
        case RequestValidationError():
            return _problem(error)
        case ValidationError():
            return str(input_error(error))
        case TimeoutError():
            return "the request took longer than the server allows"
        case HTTPException():
            return str(error.detail)
        case DiseError() | ServerError():
            return str(error)
    return "the server failed; its log says why"


def _problem(error: RequestValidationError) -> str:
    """Return a body's first problem as one line that names the field, and a value that is short:
    what the client sent is in the client's hands already.
    """
    problem = error.errors()[0]
    if problem["type"] == "json_invalid":
        return f"the body is not JSON: {problem['ctx']['error']}"
    if problem["type"] in {NOT_SUPPORTED, UNKNOWN}:
        return str(problem["msg"])
    value, is_shown = problem.get("input"), problem["type"] not in UNSHOWN
    given = f" (given: {value!r:.80})" if is_shown and isinstance(value, Scalar) else ""
    return f"{_location(error) or 'body'}: {problem['msg'].removeprefix('Value error, ')}{given}"


def _location(error: RequestValidationError | ValidationError) -> str | None:
    """Return the field at fault, with dots; which kind of value a union tried is no part of it."""
    problem = error.errors()[0]
    if problem["type"] == "json_invalid":
        return None
    shown = [
        f"{name!s:.80}".encode("utf-8", "backslashreplace").decode()
        for name in place_of(problem)
        if name != "body" and not (isinstance(name, str) and KIND.fullmatch(name))
    ]
    return ".".join(shown) or None
