"""The routes of `dise serve` behind two replicas, one of which is killed."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from dise_core import LLM, InputError, SamplingParams

serve = pytest.importorskip("ray.serve", exc_type=ImportError)

from dise_cluster.serve import build  # noqa: E402

NAME = f"test-{os.getpid()}"


@pytest.fixture(scope="module")
def url(ray_here: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the application, once both replicas answer."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    keys = tmp_path_factory.mktemp("serve") / "keys"
    keys.write_text("secret\n")
    # Its proxy has a minute to start, in which a busy machine may give it no core.
    start = retry(retry=retry_if_exception_type(TimeoutError), stop=stop_after_attempt(3))
    start(serve.start)(http_options={"port": port})
    arguments = {"num_replicas": "2", "num_cpus": "0.5", "api_key_file": str(keys)}
    serve.run(build(arguments), name=NAME)
    yield f"http://127.0.0.1:{port}"
    serve.shutdown()


async def written(client: openai.AsyncOpenAI, number: int) -> str:
    """Return an answer: every second is streamed, and asked for again if its stream breaks."""
    prompt, is_streamed = f"{number + 1},18,75 -> 10", number % 2 == 1
    asked = {"model": "countdown", "prompt": prompt, "max_tokens": 24, "seed": 1}
    if not is_streamed:
        return (await client.completions.create(**asked)).choices[0].text  # type: ignore[call-overload, no-any-return]
    try:
        chunks = await client.completions.create(**asked, stream=True)  # type: ignore[call-overload]
        choices = [choice async for chunk in chunks for choice in chunk.choices]
    except openai.APIConnectionError:
        return await written(client, number)
    assert choices[-1].finish_reason is not None
    return "".join(choice.text for choice in choices)


def test_no_request_is_lost_with_a_replica(url: str) -> None:
    async def all_written() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="secret") as client:
            tasks = [asyncio.create_task(written(client, number)) for number in range(60)]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            ours = ["pgrep", "--full", f"ServeReplica:{NAME}"]
            pids = subprocess.run(ours, capture_output=True, text=True, check=True).stdout.split()
            os.kill(int(pids[0]), signal.SIGKILL)
            return await asyncio.gather(*tasks)

    params = SamplingParams(max_tokens=24, seed=1)
    answers = LLM().generate(
        [f"{number + 1},18,75 -> 10" for number in range(60)], params, chat=False
    )
    assert asyncio.run(all_written()) == [answer.outputs[0].text for answer in answers]


def test_metrics_are_those_of_all_replicas(url: str) -> None:
    key, names = {"Authorization": "Bearer secret"}, set[str]()
    while len(names) < 2:  # the dead replica is replaced
        told = httpx.get(f"{url}/metrics", headers=key, timeout=60).text
        names = set(re.findall(r'^dise_nfe_total{replica="(\w+)",} ', told, re.MULTILINE))
    assert told.count("# TYPE dise_nfe_total counter") == 1
    assert len(names) == 2


def test_strangers_are_refused(url: str) -> None:
    assert httpx.get(f"{url}/v1/models").status_code == 401
    assert httpx.get(f"{url}/health", headers={"Host": "evil.example"}).status_code == 403
    body, key = b"x" * 3 * 2**20, {"Authorization": "Bearer secret"}
    assert httpx.post(f"{url}/v1/completions", content=body, headers=key).status_code == 413


def test_wrong_arguments_end_before_anything_is_deployed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="max_num_seqs='many'"):
        build({"max_num_seqs": "many"})
    (tmp_path / "keys").write_text("\n")
    with pytest.raises(InputError, match="holds no key"):
        build({"api_key_file": str(tmp_path / "keys")})
