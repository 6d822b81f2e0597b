"""POST /v1/responses: OpenAI's newer API, for text."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from dise_app.server.answers import chat_logprobs, confidence, cost
from dise_app.server.completions import event_stream
from dise_app.server.response_events import lines
from dise_app.server.response_schemas import ResponseRequest
from dise_app.server.service import Service
from dise_core import RequestOutput, SamplingParams
from dise_core.records import Record


class ResponseEnvelope:
    """What all states of one response share: its id, its time, and what was asked."""

    def __init__(self, body: ResponseRequest, params: SamplingParams, model: str) -> None:
        self.message_id = f"msg_{uuid.uuid4().hex}"
        self._logprobs = body.shown_logprobs
        self._shared: Record = {
            "id": f"resp_{uuid.uuid4().hex}",
            "object": "response",
            "created_at": int(time.time()),
            "model": model,
            "instructions": body.instructions,
            "max_output_tokens": params.max_tokens,
            "temperature": params.temperature,
            "top_p": params.top_p,
            "top_logprobs": body.top_logprobs or 0,
            "text": {"format": {"type": "text"}},
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

    def begun(self) -> Record:
        """Return the response before its answer."""
        return self._of("in_progress", [], None)

    def whole(self, answer: RequestOutput) -> Record:
        """Return the response with its answer; it is incomplete where the answer has no end."""
        is_cut = answer.outputs[0].finish_reason == "length"
        message = self.message(answer)
        return self._of("incomplete" if is_cut else "completed", [message], answer)

    def message(self, answer: RequestOutput | None) -> Record:
        """Return the message, without an answer the one that has just begun."""
        if answer is None:
            status, content, more = "in_progress", [], {}
        else:
            output = answer.outputs[0]
            status = "incomplete" if output.finish_reason == "length" else "completed"
            content = [self.part(output.text, answer)]
            more = {"dise": confidence(output, answer.seed)}
        item = {"id": self.message_id, "type": "message", "role": "assistant", "status": status}
        return {**item, "content": content, **more}

    def part(self, text: str, answer: RequestOutput | None = None) -> Record:
        logprobs = [] if answer is None else self.logprobs(answer)
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}

    def logprobs(self, answer: RequestOutput) -> Sequence[Record]:
        """Return the log-probabilities of the answer's tokens; none if they were not asked for."""
        if self._logprobs is None:
            return []
        tokens = [token for token in answer.outputs[0].tokens if not token.is_end]
        entries: list[Record] = chat_logprobs(tokens)["content"]
        return entries

    def _of(self, status: str, output: list[Record], answer: RequestOutput | None) -> Record:
        details = {"reason": "max_output_tokens"} if status == "incomplete" else None
        more = {} if answer is None else {"dise": cost([answer])}
        return {
            **self._shared,
            "status": status,
            "incomplete_details": details,
            "output": output,
            "usage": None if answer is None else _usage(answer),
            **more,
        }


def add_responses(app: FastAPI, service: Service) -> None:
    """Add the route."""

    @app.post("/v1/responses")
    async def responses(body: ResponseRequest, request: Request) -> Response:
        service.check_chat()
        params = service.sampling(body, body.shown_logprobs or 0)
        envelope = ResponseEnvelope(body, params, service.model)
        if body.stream:
            return event_stream(await lines(service, body, params, envelope))
        work = service.llm.chat(body.conversation, params)
        [answer] = await service.run(work, request)
        return JSONResponse(envelope.whole(answer))


def _usage(answer: RequestOutput) -> Record:
    read, written = answer.usage.prompt_tokens, answer.usage.completion_tokens
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read + written,
    }
