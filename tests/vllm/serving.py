"""Starts a real vLLM server."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_PLUGINS": "dise,dise_http",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}
READING = ("--runner", "pooling", "--hf-overrides", '{"head_dtype": "model"}')
READY_WITHIN = 480


@dataclass(frozen=True)
class Server:
    """A started server."""

    address: str
    folder: str
    process: subprocess.Popen[bytes]


@contextmanager
def server(folder: Path, log: Path, *arguments: str) -> Iterator[Server]:
    """Yield a server of the checkpoint in `folder`, ready to answer."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = f"--model {folder} --host 127.0.0.1 --port {port} --skip-tokenizer-init"
    options += " --dtype float32 --enforce-eager --max-num-batched-tokens 2048"
    module = "vllm.entrypoints.openai.api_server"
    command = [sys.executable, "-m", module, *options.split(), *arguments]
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, env=os.environ | ENVIRONMENT, stdout=file, stderr=file, start_new_session=True
        )
    try:
        address = f"http://127.0.0.1:{port}"
        _wait(address, process, log)
        yield Server(address, str(folder), process)
    finally:
        process.terminate()
        process.wait(60)
        with suppress(ProcessLookupError):
            # The engine's own processes, where the server was killed.
            os.killpg(process.pid, signal.SIGKILL)


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
