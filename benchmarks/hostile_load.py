"""A server among good, hostile, slow and vanishing clients: is every good answer the one that it is
alone, does memory stay flat, and does SIGTERM drain?

python benchmarks/hostile_load.py [--requests 5000] [--connections 64]

Starts `dise serve` on the embedded model. A tenth of the requests are hostile, some clients leave
before their answer, some send their body in pieces. Prints counts and the server's memory, and
exits with 1 where something did not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import httpx
import psutil

SERVE = "from dise_app.cli.main import main; main()"
FLAT = 1.05
"""How much more memory the last quarter may take than the third."""

PROMPTS = ("83,18,75 -> 10", "61,27,45 -> 43", "5,9,2 -> 16", "44,19,35 -> 98")

Body = tuple[str, dict[str, Any]]

GOOD: list[Body] = [
    *(
        (
            "/v1/chat/completions",
            {
                "messages": [{"role": "user", "content": prompt}],
                "max_tokens": 4 + 4 * number,
                "temperature": 0.7 * (number % 2),
                "seed": number,
                "n": 1 + number % 2,
                "dise": {"block_length": 8},
            },
        )
        for number, prompt in enumerate(PROMPTS)
    ),
    *(("/v1/score", {"prompt": prompt, "response": "1+2=3,3+4=7"}) for prompt in PROMPTS),
    ("/v1/rank", {"prompt": PROMPTS[0], "candidates": ["1+2=3", "2+2=4"]}),
    (
        "/v1/score",
        {
            "prompt": PROMPTS[1],
            "response": "1+2=3",
            "scorer": "mc",
            "scorer_settings": {"num_samples": 8},
        },
    ),
]

HOSTILE: list[tuple[str, bytes]] = [
    ("/v1/chat/completions", b'{"messages": ' + b"[" * 10_000),
    ("/v1/chat/completions", b'{"messages": [{"role": "user", "content": "\\ud800"}]}'),
    ("/v1/score", b'{"prompt": "1", "response": ' + b'"' + b"1" * 500_000 + b'"}'),
    ("/v1/score", b'{"prompt": "1", "response": "2", "scorer": "interleaved", '
     b'"scorer_settings": {"k": 1e9}}'),
    ("/v1/completions", b'{"prompt": "1", "max_tokens": 4, "n": 1e18}'),
    ("/v1/completions", b'{"prompt": ["1", null, 3], "max_tokens": 4}'),
    ("/v1/completions", b"\xff\xfe\x00"),
    ("/v1/rank", b'{"prompt": "1", "candidates": []}'),
    ("/v1/score", b'{"prompt": "1", "response": "2", "selector": "last-' + b"9" * 5000 + b'"}'),
    ("/v1/score", b'{"prompt": "1", "response": "2", "scorer": "mc", '
     b'"scorer_settings": {"num_samples": 1e30}}'),
]  # fmt: skip


def essence(answer: dict[str, Any]) -> list[Any]:
    """Return the texts of an answer, and its scores to three digits."""
    parts = answer.get("choices") or answer["data"]
    return [
        (
            part.get("text") or part.get("message"),
            round((part.get("score") or part["dise"]["score"])["value"], 3),
        )
        for part in parts
    ]


async def in_pieces(content: bytes) -> AsyncIterator[bytes]:
    """Yield a body slowly."""
    for start in range(0, len(content), 40):
        yield content[start : start + 40]
        await asyncio.sleep(0.02)


class Clients:
    """Those who ask, and what came of it."""

    def __init__(self, client: httpx.AsyncClient, alone: list[list[Any]]) -> None:
        self._client = client
        self._alone = alone
        self.counts: Counter[str] = Counter()

    async def one(self, number: int) -> None:
        """Make one request of a kind that its number decides."""
        draw = random.Random(number)
        if number % 10 == 0:
            await self._hostile(*draw.choice(HOSTILE))
            return
        index = draw.randrange(len(GOOD))
        path, body = GOOD[index]
        if number % 10 == 1:
            await self._leave(path, body)
            return
        content = json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        sent = in_pieces(content) if number % 10 == 2 else content
        answer = await self._client.post(path, content=sent, headers=headers)
        is_right = answer.status_code == 200 and essence(answer.json()) == self._alone[index]
        self.counts["good, as alone" if is_right else f"good, WRONG ({answer.status_code})"] += 1

    async def _hostile(self, path: str, content: bytes) -> None:
        answer = await self._client.post(
            path, content=content, headers={"Content-Type": "application/json"}
        )
        is_refused = 400 <= answer.status_code < 500
        self.counts["hostile, refused" if is_refused else f"hostile, {answer.status_code}"] += 1

    async def _leave(self, path: str, body: dict[str, Any]) -> None:
        with suppress(httpx.TimeoutException):
            await self._client.post(path, json=body, timeout=0.01)
        self.counts["left"] += 1


async def load(url: str, requests: int, connections: int, process: psutil.Process) -> bool:
    """Make all requests; print what came of them and whether memory stayed flat."""
    limits = httpx.Limits(max_connections=connections)
    async with httpx.AsyncClient(base_url=url, timeout=300, limits=limits) as client:
        alone = [essence((await client.post(path, json=body)).json()) for path, body in GOOD]
        clients, memory = Clients(client, alone), []
        waiting = iter(range(requests))

        async def worker() -> None:
            for number in waiting:
                await clients.one(number)
                memory.append(process.memory_info().rss / 2**20)

        started = time.perf_counter()
        await asyncio.gather(*(worker() for _ in range(connections)))
        seconds = time.perf_counter() - started
        health = (await client.get("/health")).json()
    quarters = [
        statistics.mean(memory[i * requests // 4 : (i + 1) * requests // 4]) for i in range(4)
    ]
    print(f"{requests} requests in {seconds:.0f} s: {dict(clients.counts)}")
    print(f"memory by quarters, MiB: {', '.join(f'{each:.0f}' for each in quarters)}")
    print(f"afterwards: {health}")
    is_right = set(clients.counts) <= {"good, as alone", "hostile, refused", "left"}
    return is_right and quarters[3] <= FLAT * quarters[2] and health["running"] == 0


def main() -> int:
    """Start the server, load it, and end it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--connections", type=int, default=64)
    args = parser.parse_args()
    command = [sys.executable, "-c", SERVE, "serve", "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert server.stdout is not None
    url = server.stdout.readline().split()[-1]
    held = asyncio.run(load(url, args.requests, args.connections, psutil.Process(server.pid)))
    server.send_signal(signal.SIGTERM)
    code = server.wait(60)
    print(f"SIGTERM: exit code {code}")
    return 0 if held and code == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
