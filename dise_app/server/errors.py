"""Errors in OpenAI's format, each with its HTTP status."""

import re
from collections.abc import Mapping
from typing import Any, TypedDict

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from dise_app.server.schemas.neutral import NOT_SUPPORTED
from dise_core import ClosedError, DiseError, InputError, OverloadedError, TooLongError
from dise_core.params.base import UNKNOWN, input_error, place_of
from dise_core.struck import struck

STATUSES: tuple[tuple[type[DiseError], int, str | None], ...] = (
    (TooLongError, 400, "context_length_exceeded"),
    (InputError, 400, None),
    (OverloadedError, 429, "overloaded"),
    (ClosedError, 503, "shutting_down"),
)
"""The library's errors with status and OpenAI's code. The first match counts, else 500."""

KIND = re.compile(r"str|int|bool|float|(list|literal)\[.*\]|(function|constrained|tagged|is)-.*")
"""A member of a union among the names that pydantic gives for a place."""

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


PYDANTICS = (ValidationError, RequestValidationError)
KNOWN = (DiseError, ServerError, TimeoutError, HTTPException, *PYDANTICS)
"""The errors whose sentence a client gets; any other is a failure of the server."""


class ErrorObject(TypedDict):
    """OpenAI's description of an error."""

    message: str
    type: str
    param: str | None
    code: str | None


def no_path(path: str) -> ServerError:
    """Return the refusal of a request for a path that no route has."""
    sentence = f"There is no path {path!r:.200} here. GET /openapi.json lists those that there are."
    return ServerError(404, struck("path", path) or sentence)


def answer(error: Exception) -> JSONResponse:
    """Return the HTTP response to a request that failed."""
    refusal = _refusal(error)
    headers = {"Retry-After": "1"} if refusal.status in {429, 503} else {}
    if refusal.status == 408 or refusal.code == "bad_framing":
        headers["Connection"] = "close"
    return JSONResponse({"error": error_object(refusal)}, refusal.status, headers=headers)


def error_object(error: Exception) -> ErrorObject:
    """Return the body that a client gets for an error."""
    refusal = _refusal(error)
    types = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
    default = "invalid_request_error" if refusal.status < 500 else "server_error"
    return {
        "message": str(refusal).encode("utf-8", "backslashreplace").decode(),
        "type": types.get(refusal.status, default),
        "param": refusal.param,
        "code": refusal.code,
    }


def _refusal(error: Exception) -> ServerError:
    match error:
        case ServerError():
            return error
        case RequestValidationError():
            return ServerError(400, _problem(error), _location(error))
        case ValidationError():
            return ServerError(400, str(input_error(error)), _location(error))
        case HTTPException():
            return ServerError(error.status_code, str(error.detail))
        case TimeoutError():
            return ServerError(
                504, "the request took longer than the server allows", code="timeout"
            )
    message = str(error) if isinstance(error, DiseError) else "the server failed; its log says why"
    param = error.parameter if isinstance(error, InputError) else None
    facts = ((status, code) for cls, status, code in STATUSES if isinstance(error, cls))
    status, code = next(facts, (500, None))
    return ServerError(status, message, param, code)


def _problem(error: RequestValidationError) -> str:
    problem = error.errors()[0]
    if _is_no_json(problem):
        return f"the body is not JSON: {problem['ctx']['error']}"
    if problem["type"] in {NOT_SUPPORTED, UNKNOWN}:
        return str(problem["msg"])
    value, is_shown = problem.get("input"), problem["type"] not in {"missing", "extra_forbidden"}
    suffix = f" (given: {value!r:.80})" if is_shown and isinstance(value, Scalar) else ""
    return f"{_location(error) or 'body'}: {problem['msg'].removeprefix('Value error, ')}{suffix}"


def _location(error: RequestValidationError | ValidationError) -> str | None:
    """Return the field at fault, with dots and without the members of unions."""
    problem = error.errors()[0]
    if _is_no_json(problem):
        return None
    names = [
        f"{name!s:.80}".encode("utf-8", "backslashreplace").decode()
        for name in place_of(problem)
        if name != "body" and not (isinstance(name, str) and KIND.fullmatch(name))
    ]
    return ".".join(names) or None


def _is_no_json(problem: Mapping[str, Any]) -> bool:
    """Return whether the body is no JSON, and not a text in it: its place is a number."""
    return problem["type"] == "json_invalid" and len(problem["loc"]) <= 2
