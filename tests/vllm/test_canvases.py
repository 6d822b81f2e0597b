"""DiffusionGemma on a server without our plugin, against what vLLM itself makes of our requests:
its protocol, its checks, its sampler and its answers' shape. Its model is not run, which needs a
GPU: the logits are those of a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("vllm")

import torch
from pydantic import ValidationError
from vllm.entrypoints.openai.completion.protocol import (
    CompletionRequest,
    CompletionResponse,
    CompletionResponseChoice,
)
from vllm.entrypoints.openai.completion.serving import OpenAIServingCompletion
from vllm.exceptions import VLLMValidationError
from vllm.logprobs import Logprob
from vllm.utils.diffusion import validate_diffusion_sampling_params

from dise_adapters.vllm.server.canvases import CanvasReader
from dise_adapters.vllm.server.http import Connection
from dise_core import Candidates, Ids, InputError, Read, TokenLogProbs, TopLogProbs
from tests.canvas_server import CanvasServer, RefusedError
from tests.servers import serving
from tests.vllm.diffusion_sampler import NUM_STEPS, emitted

LENGTH, VOCAB_SIZE, START = 32, 300, 5
TABLE = np.random.default_rng(0).normal(0, 3, (VOCAB_SIZE, VOCAB_SIZE)).astype(np.float32)
MODEL = SimpleNamespace(is_diffusion=True, max_logprobs=20, get_vocab_size=lambda: VOCAB_SIZE)


def logits_of(prompt: list[int], canvas: list[int]) -> Any:
    return TABLE[canvas] + TABLE[prompt[-1]] + TABLE[sum(canvas) % VOCAB_SIZE]


class Server(CanvasServer):
    """Answers with vLLM's own code, and keeps how many passes each request took."""

    num_passes: list[int]

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        try:
            request = CompletionRequest.model_validate(body)
            params = request.to_sampling_params(body["max_tokens"], {"top_k": 64, "top_p": 0.95})
            params._validate_logprobs(MODEL)
            params._validate_diffusion(MODEL)
            validate_diffusion_sampling_params(params, canvas_length=LENGTH, vocab_size=VOCAB_SIZE)
        except (ValidationError, VLLMValidationError) as error:
            raise RefusedError(str(error)) from error
        prompt = body["prompt"]
        is_read = bool((params.extra_args or {}).get("diffusion_read_only"))
        assert (params.top_k, params.top_p) == ((0, 1.0) if is_read else (64, 0.95))
        tokens, told, num_passes = emitted(
            params, LENGTH, lambda canvas: torch.from_numpy(logits_of(prompt, canvas))
        )
        self.num_passes.append(num_passes)
        rows = [
            {i: Logprob(value) for i, value in zip(*pair, strict=True)}
            for pair in zip(told.logprob_token_ids.tolist(), told.logprobs.tolist(), strict=True)
        ]
        logprobs = OpenAIServingCompletion._create_completion_logprobs(
            SimpleNamespace(
                return_tokens_as_token_ids=False,
                _get_decoded_token=OpenAIServingCompletion._get_decoded_token,
            ),
            tokens[: params.max_tokens],
            rows,
            request.logprobs,
            None,
            request.logprob_token_ids,
            return_as_token_id=request.return_tokens_as_token_ids,
        )
        choice = CompletionResponseChoice(
            index=0, text="", logprobs=logprobs, finish_reason="length"
        )
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return CompletionResponse(model="gemma", choices=[choice], usage=usage).model_dump()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(torch.accelerator, "get_memory_info", lambda: (2**30, 2**30))
    with serving(Server("", logits_of, LENGTH, set())) as server:
        server.num_passes = []
        yield server


@pytest.fixture
def reader(server: Server) -> CanvasReader:
    return CanvasReader(Connection(server.address), "gemma", LENGTH)


def text(num_tokens: int) -> Ids:
    return np.random.default_rng(1).permutation(VOCAB_SIZE)[: START + num_tokens]


def own(ids: Ids, num_tokens: int) -> Any:
    """Return log p of a canvas, [C, V], in float64."""
    canvas = ids[START:][num_tokens - LENGTH : num_tokens].tolist()
    logits = logits_of(ids[: START + num_tokens - LENGTH].tolist(), canvas).astype(np.float64)
    return logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)


def test_vllms_own_sampler_reads_a_canvas_in_one_pass(server: Server, reader: CanvasReader) -> None:
    ids = text(2 * LENGTH)
    positions = np.arange(START, len(ids))
    [reading] = reader.read([Read(ids, positions, TokenLogProbs(ids[positions]), start=START)])
    for num_tokens in (LENGTH, 2 * LENGTH):
        expected = own(ids, num_tokens)[
            np.arange(LENGTH), ids[START:][num_tokens - LENGTH : num_tokens]
        ]
        np.testing.assert_allclose(
            reading.logprobs[num_tokens - LENGTH : num_tokens], expected, rtol=1e-6, atol=1e-6
        )
    assert {*server.num_passes} == {1}


def test_vllm_tells_all_300_tokens_of_its_vocabulary(reader: CanvasReader) -> None:
    ids, everything = text(LENGTH), tuple(range(VOCAB_SIZE))
    positions = np.array([START, START + 9])
    [reading] = reader.read([Read(ids, positions, TopLogProbs(5, everything), start=START)])
    expected = own(ids, LENGTH)[[0, 9]]
    np.testing.assert_allclose(reading.logprobs[:, 5:], expected, atol=1e-5)
    likeliest = np.argsort(-expected, axis=1)[:, :5]
    np.testing.assert_array_equal(reading.token_ids[:, :5], likeliest)


def test_vllm_writes_a_canvas_in_steps_of_its_own(server: Server, reader: CanvasReader) -> None:
    ids = text(LENGTH)
    [reading] = reader.read([Read(ids, np.arange(START, len(ids)), Candidates(), start=START)])
    assert reading.token_ids.shape == (LENGTH,)
    assert np.isfinite(reading.logprobs).all()
    assert 1 < server.num_passes[0] <= NUM_STEPS + 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"length": 40}, "diffusion_canvas_length must be a positive integer no larger than"),
        ({"token": VOCAB_SIZE}, "diffusion_seed_canvas ids must be in"),
        ({"k": 21}, "Requested sample logprobs of 21, which is greater than max allowed: 20"),
    ],
)
def test_what_vllm_refuses_is_one_sentence(
    server: Server, changes: dict[str, int], message: str
) -> None:
    length = changes.get("length", LENGTH)
    ids = text(length)
    ids[-1] = changes.get("token", ids[-1])
    reader = CanvasReader(Connection(server.address), "gemma", length)
    read = Read(ids, np.array([START]), TopLogProbs(changes.get("k", 1)), start=START)
    with pytest.raises(InputError, match=f"/v1/completions answered 400: .*{message}") as caught:
        reader.read([read])
    assert len(str(caught.value).splitlines()) == 1
