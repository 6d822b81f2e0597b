"""POST /v1/responses: OpenAI's newer API, for text."""

import time
import uuid
from collections.abc import Sequence
from itertools import count

from fastapi import FastAPI, Request
from fastapi.responses import Response

from dise_app.server.choices import JsonObject, chat_logprobs, confidence, cost, text_tokens
from dise_app.server.errors import ErrorObject
from dise_app.server.schemas.forms import ResponseFormat
from dise_app.server.schemas.responses import ResponseRequest
from dise_app.server.service import Service
from dise_app.server.streaming import Reply, chat
from dise_core import RequestOutput, SamplingParams


class ResponseReply(Reply):
    """A response, whose events are numbered. Of several answers it holds the best."""

    def __init__(self, body: ResponseRequest, params: SamplingParams, model: str) -> None:
        super().__init__(body, params)
        self._numbers = count()
        text_format = body.response_format or ResponseFormat(type="text")
        self._message_id = f"msg_{uuid.uuid4().hex}"
        place = {"output_index": 0, "content_index": 0}
        self._place: JsonObject = {"item_id": self._message_id, **place}
        self._shared: JsonObject = {
            "id": body.rid or f"resp_{uuid.uuid4().hex}",
            "object": "response",
            "created_at": int(time.time()),
            "model": model,
            "instructions": body.instructions,
            "max_output_tokens": params.max_tokens,
            "temperature": params.temperature,
            "top_p": params.top_p,
            "top_logprobs": body.top_logprobs or 0,
            "text": {"format": text_format.model_dump(by_alias=True, exclude_none=True)},
            "tools": [],
            "tool_choice": "none",
            "parallel_tool_calls": False,
            "truncation": "disabled",
            "store": False,
            "background": False,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "metadata": {},
            "error": None,
        }

    def whole(self, answers: Sequence[RequestOutput]) -> JsonObject:
        [answer] = answers
        return self._response(_status(answer), answer)

    def begun(self) -> list[JsonObject]:
        response, message = self._response("in_progress"), self._message("in_progress")
        return [
            self._event("response.created", response=response),
            self._event("response.in_progress", response=response),
            self._event("response.output_item.added", output_index=0, item=message),
            self._event("response.content_part.added", **self._place, part=self._part("")),
        ]

    def added(self, text: str, **more: JsonObject) -> JsonObject:
        delta = {"delta": text, "logprobs": [], **more}
        return self._event("response.output_text.delta", **self._place, **delta)

    def ended(self, answer: RequestOutput) -> list[JsonObject]:
        text, status = answer.outputs[0].text, _status(answer)
        unsent, part = self.unsent(text), self._part(text, answer)
        fields = {"text": text, "logprobs": part["logprobs"]}
        message = self._message(status, answer)
        return [
            *([self.added(unsent)] if unsent else []),
            self._event("response.output_text.done", **self._place, **fields),
            self._event("response.content_part.done", **self._place, part=part),
            self._event("response.output_item.done", output_index=0, item=message),
            self._event(f"response.{status}", response=self._response(status, answer)),
        ]

    def failed(self, error: ErrorObject) -> JsonObject:
        return self._event("error", **{name: error[name] for name in ("message", "code", "param")})

    def line(self, event: JsonObject) -> str:
        return f"event: {event['type']}\n{super().line(event)}"

    def _event(self, name: str, **fields: object) -> JsonObject:
        return {"type": name, "sequence_number": next(self._numbers), **fields}

    def _response(self, status: str, answer: RequestOutput | None = None) -> JsonObject:
        details = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return {
            **self._shared,
            "status": status,
            "incomplete_details": details,
            "output": [] if answer is None else [self._message(status, answer)],
            "usage": None if answer is None else _usage(answer),
            **({} if answer is None else {"dise": cost([answer])}),
        }

    def _message(self, status: str, answer: RequestOutput | None = None) -> JsonObject:
        message: JsonObject = {"content": []}
        if answer is not None:
            output = answer.outputs[0]
            content = [self._part(output.text, answer)]
            message = {"content": content, "dise": confidence(output, answer.seed)}
        about = {"type": "message", "role": "assistant", "status": status}
        return {"id": self._message_id, **about, **message}

    def _part(self, text: str, answer: RequestOutput | None = None) -> JsonObject:
        tokens = text_tokens(answer.outputs[0]) if answer and self.has_logprobs else []
        logprobs = chat_logprobs(tokens)["content"]
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def add_responses(app: FastAPI, service: Service) -> None:
    """Add the route."""

    @app.post("/v1/responses")
    async def responses(body: ResponseRequest, request: Request) -> Response:
        return await chat(service, body, request, ResponseReply)


def _status(answer: RequestOutput) -> str:
    return "incomplete" if answer.outputs[0].finish_reason == "length" else "completed"


def _usage(answer: RequestOutput) -> JsonObject:
    num_input, num_output = answer.usage.prompt_tokens, answer.usage.completion_tokens
    return {
        "input_tokens": num_input,
        "input_tokens_details": {
            "cached_tokens": answer.usage.cached_tokens,
            "cache_write_tokens": 0,
        },
        "output_tokens": num_output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": num_input + num_output,
    }
