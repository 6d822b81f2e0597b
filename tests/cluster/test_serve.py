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


NUM_REQUESTS = int(os.environ.get("DISE_SERVE_REQUESTS", "60"))
AT_ONCE = 60


def prompt_of(number: int) -> str:
    return f"{number + 1},18,75 -> 10"


async def answered(client: openai.AsyncOpenAI, number: int) -> str | float:
    """Return a text, a streamed text, an answer in a chat or a score, whichever has its turn. A
    stream that breaks is asked for again.
    """
    asked = {"model": "countdown", "max_tokens": 24, "seed": 1}
    prompt, turn = prompt_of(number), number % 4
    if turn == 0:
        answer = await client.completions.create(prompt=prompt, **asked)  # type: ignore[call-overload]
        return answer.choices[0].text  # type: ignore[no-any-return]
    if turn == 1:
        messages = [{"role": "user", "content": prompt}]
        answer = await client.chat.completions.create(messages=messages, **asked)  # type: ignore[call-overload]
        return answer.choices[0].message.content  # type: ignore[no-any-return]
    if turn == 2:
        body = {"prompt": prompt, "response": "18+75"}
        told = await client.post("/score", body=body, cast_to=object)
        return told["data"][0]["score"]["value"]  # type: ignore[index, no-any-return]
    try:
        chunks = await client.completions.create(prompt=prompt, **asked, stream=True)  # type: ignore[call-overload]
        choices = [choice async for chunk in chunks for choice in chunk.choices]
    except openai.APIConnectionError:
        return await answered(client, number)
    assert choices[-1].finish_reason is not None
    return "".join(choice.text for choice in choices)


def expected() -> list[str | float]:
    """Return what one process answers."""
    llm, params = LLM(), SamplingParams(max_tokens=24, seed=1)
    prompts = [prompt_of(number) for number in range(NUM_REQUESTS)]
    plain, chats = (llm.generate(prompts, params, chat=chat) for chat in (False, True))
    scores = llm.score(prompts, ["18+75"] * NUM_REQUESTS)
    texts = ([answer.outputs[0].text for answer in answers] for answers in (plain, chats))
    kinds = [*texts, [answer.outputs[0].score.value or 0.0 for answer in scores]]
    order = [kinds[0], kinds[1], kinds[2], kinds[0]]
    return [order[number % 4][number] for number in range(NUM_REQUESTS)]


def test_no_request_is_lost_with_a_replica(url: str) -> None:
    async def all_answers() -> list[str | float]:
        places = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> str | float:
            async with places:
                if number % 300 == AT_ONCE // 2:  # while the first requests, or 300 more, run
                    ours = ["pgrep", "--full", f"ServeReplica:{NAME}"]
                    pids = subprocess.run(ours, capture_output=True, text=True, check=True).stdout
                    os.kill(int(pids.split()[0]), signal.SIGKILL)
                return await answered(client, number)

        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="secret") as client:
            return await asyncio.gather(*map(one, range(NUM_REQUESTS)))

    assert asyncio.run(all_answers()) == pytest.approx(expected(), abs=1e-5)


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
