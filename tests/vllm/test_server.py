"""A real vLLM server with our plugin: the same answers over HTTP, refusals that harm nobody, and a server that dies."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

pytest.importorskip("vllm")

import dise_adapters.countdown
from dise_adapters.vllm import http
from dise_core import LLM, SamplingParams, ScoringParams
from dise_core.errors import ModelError

FOLDER = Path(dise_adapters.countdown.__file__).parent
PARAMS = SamplingParams(max_tokens=48, block_length=16, tokens_per_step=2)
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_PLUGINS": "dise,dise_http",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}
READY_WITHIN = 240

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A started server's address and process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(FOLDER), "--host", "127.0.0.1"]
    command += ["--port", str(port), "--runner", "pooling", "--skip-tokenizer-init", "--dtype", "float32", "--enforce-eager"]
    command += ["--max-num-batched-tokens", "4096", "--hf-overrides", '{"head_dtype": "model"}']
    log = tmp_path_factory.mktemp("server") / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=os.environ | ENVIRONMENT, stdout=file, stderr=file)
    address = f"http://127.0.0.1:{port}"
    try:
        _wait(address, process, log)
        yield address, process
    finally:
        process.terminate()
        process.wait(60)


def _wait(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_WITHIN
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            if httpx.get(f"{address}/health").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.5)
    raise AssertionError(log.read_text()[-3000:])


def test_a_server_writes_what_the_model_writes(server: tuple[str, subprocess.Popen[bytes]]) -> None:
    prompts = [f"{n + 40},{n + 7},{n + 11} -> {n + 36}" for n in range(8)]
    ours, theirs = (LLM(model).generate(prompts, PARAMS) for model in (server[0], "countdown"))
    for one, other in zip(ours, theirs, strict=True):
        assert one.outputs[0].token_ids == other.outputs[0].token_ids
        assert one.outputs[0].score.value == pytest.approx(other.outputs[0].score.value, abs=1e-4)
    mc = ScoringParams(scorer="mc", selector="response", scorer_settings={"num_samples": 4})
    [one], [other] = (LLM(model).score(prompts[:1], ["1+1=2"], mc) for model in (server[0], "countdown"))
    assert one.outputs[0].score.log_likelihood == pytest.approx(other.outputs[0].score.log_likelihood, abs=1e-3)


def top(position: int) -> dict[str, object]:
    return {"positions": [position], "readout": "top_logprobs", "k": 1}


@pytest.mark.parametrize(
    ("row", "status", "message"),
    [
        ({"token_ids": [1, 2], "reads": [top(5)]}, 400, "rows.0: positions must be in 0..1"),
        ({"token_ids": [1, 99], "reads": [top(1)]}, 400, "token ids must be in 0..31"),
        ({"token_ids": [1, -1], "reads": [top(1)]}, 400, "token ids must be in 0..31"),
        ({"token_ids": [1] * 600, "reads": [top(1)]}, 400, "longer than the model's limit of 512"),
        ({"token_ids": [1], "reads": [{"positions": [0], "readout": "distribution"}]}, 400, "do not travel over HTTP"),
        ({"token_ids": [1], "reads": []}, 400, "at least 1 item"),
        ({"token_ids": [1], "reads": [top(0)], "model": "?"}, 400, "model"),
    ],
)
def test_refusals_leave_the_engine_as_it_was(
    server: tuple[str, subprocess.Popen[bytes]], row: dict[str, object], status: int, message: str
) -> None:
    body = {"rows": [row]}
    answer = httpx.post(f"{server[0]}/v1/dise/read", json=body)
    assert answer.status_code == status
    assert message in answer.json()["error"]["message"]
    [one], [other] = (LLM(model).score("8,3,5 -> 10", "5+8-3=10") for model in (server[0], "countdown"))
    assert one.outputs[0].score.value == pytest.approx(other.outputs[0].score.value, abs=1e-4)


def test_another_model_is_not_there(server: tuple[str, subprocess.Popen[bytes]]) -> None:
    body = {"model": "other", "rows": [{"token_ids": [1], "reads": [top(0)]}]}
    answer = httpx.post(f"{server[0]}/v1/dise/read", json=body)
    assert (answer.status_code, "there is no model 'other'" in answer.text) == (404, True)


def test_stock_pooling_tells_of_every_token(server: tuple[str, subprocess.Popen[bytes]]) -> None:
    answer = httpx.post(f"{server[0]}/pooling", json={"input": [5, 6, 7, 8]})
    [row] = answer.json()["data"]
    [scored] = LLM("countdown").score([[]], [[5, 6, 7, 8]], ScoringParams(selector="full"))
    assert sum(token[0] for token in row["data"]) / 4 == pytest.approx(scored.outputs[0].score.value, abs=1e-4)


def test_a_killed_server_is_a_clear_error(
    server: tuple[str, subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "ATTEMPTS", 2)
    address, process = server
    llm = LLM(address)
    process.kill()
    process.wait(60)
    with pytest.raises(ModelError, match="cannot be reached"):
        llm.score("8,3,5 -> 10", "5+8-3=10")
