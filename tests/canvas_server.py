"""A server that answers about DiffusionGemma as vLLM 0.32 does without our plugin: what it takes,
what it refuses and in which words, and the shape of its answers.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from typing import Any

import numpy as np
import numpy.typing as npt

from tests import servers
from tests.servers import address

Logits = Callable[[list[int], list[int]], npt.NDArray[np.float64]]
"""The logits of a canvas, [C, V], of its tokens and those before it."""


class RefusedError(Exception):
    """A request that is answered with 400."""


class CanvasServer(ThreadingHTTPServer):
    """Serves logits. Writing takes `writes`, the canvases that it then writes, one a request;
    each ends at its first end token.
    """

    def __init__(self, root: str, logits: Logits, length: int, ends: set[int]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.root, self.logits, self.length, self.ends = root, logits, length, ends
        self.vocab_size = logits([1], [1] * length).shape[1]
        self.address = address(self)
        self.max_model_len, self.max_logprobs, self.version = 400, 20, "0.32.0"
        self.writes: list[list[int]] = []
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.lock = threading.Lock()

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to POST /v1/completions. Raises RefusedError."""
        xargs = body.get("vllm_xargs", {})
        self.check(body, xargs)
        if seed := xargs.get("diffusion_seed_canvas"):
            logits = self.logits(body["prompt"], seed)[: body["max_tokens"]]
            tokens, reason = logits.argmax(-1).tolist(), "length"
        else:
            tokens, reason = self.write(body["max_tokens"])
            canvas = (tokens + [0] * self.length)[: self.length]
            logits = self.logits(body["prompt"], canvas)[: len(tokens)]
        logprobs = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
        return self.told(body, tokens, logprobs, reason)

    def check(self, body: dict[str, Any], xargs: dict[str, Any]) -> None:
        width = xargs.get("diffusion_canvas_length", self.length)
        seed, named = xargs.get("diffusion_seed_canvas"), body.get("logprob_token_ids", [])
        problems = {
            "The temperature, min_p, seed, min_tokens, logit_bias, bad_words, and "
            "allowed_token_ids sampling parameters are not yet supported with diffusion models.": (
                body.get("temperature", 1) != 1 or "seed" in body
            ),
            "diffusion_canvas_length must be a positive integer no larger than the served "
            "canvas.": width > self.length,
            f"diffusion_seed_canvas must hold exactly {width} ids, got {len(seed or ())}.": (
                seed is not None and len(seed) != width
            ),
            f"diffusion_seed_canvas ids must be in [0, {self.vocab_size}).": (
                max(seed or [0]) >= self.vocab_size
            ),
            f"Requested sample logprobs of {body.get('logprobs')}, which is greater than max "
            f"allowed: {self.max_logprobs}": not named and body["logprobs"] > self.max_logprobs,
            f"Requested logprob_token_ids of length {len(named)}, which is greater than max "
            "allowed: 128": len(named) > 128,
            f"This model's maximum context length is {self.max_model_len} tokens.": (
                len(body["prompt"]) + body["max_tokens"] > self.max_model_len
            ),
        }
        for problem, is_met in problems.items():
            if is_met:
                raise RefusedError(problem)

    def write(self, max_tokens: int) -> tuple[list[int], str]:
        with self.lock:
            canvas = self.writes.pop(0)[:max_tokens]
        end = next((place for place, token in enumerate(canvas) if token in self.ends), None)
        return (canvas, "length") if end is None else (canvas[: end + 1], "stop")

    def told(
        self,
        body: dict[str, Any],
        tokens: list[int],
        logprobs: npt.NDArray[np.float64],
        reason: str,
    ) -> dict[str, Any]:
        rows = []
        for token, row in zip(tokens, logprobs, strict=True):
            top = np.argsort(-row, kind="stable")[: body["logprobs"]].tolist()
            ids = [token, *body.get("logprob_token_ids", top)]
            rows.append({f"token_id:{i}": max(float(np.float32(row[i])), -9999.0) for i in ids})
        names = [f"token_id:{token}" for token in tokens]
        told = {
            "text_offset": [0] * len(tokens),
            "tokens": names,
            "token_logprobs": [row[name] for name, row in zip(names, rows, strict=True)],
            "top_logprobs": rows,
        }
        choice = {"index": 0, "text": "", "logprobs": told, "finish_reason": reason}
        return {"id": "cmpl-1", "object": "text_completion", "choices": [choice], "usage": {}}


class Handler(servers.Handler):
    server: CanvasServer

    def do_GET(self) -> None:
        self.server.keys.append(self.headers["Authorization"])
        model = {
            "id": "gemma",
            "object": "model",
            "owned_by": "vllm",
            "root": self.server.root,
            "max_model_len": self.server.max_model_len,
        }
        answers: dict[str, Any] = {
            "/v1/models": {"object": "list", "data": [model]},
            "/version": {"version": self.server.version},
        }
        self._send(200, answers[self.path])

    def do_POST(self) -> None:
        server, body = self.server, self.body()
        server.keys.append(self.headers["Authorization"])
        with server.lock:
            server.asked.append(body)
        try:
            status, answer = 200, server.complete(body)
        except RefusedError as error:
            told = {"message": str(error), "type": "BadRequestError", "param": None, "code": 400}
            status, answer = 400, {"error": told}
        self._send(status, answer)

    def _send(self, status: int, body: dict[str, Any]) -> None:
        self.send(status, json.dumps(body).encode())
