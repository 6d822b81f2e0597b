"""A corpus on two workers of Ray that are killed, and their driver: is every row there, once, as in
one process? And what do Ray and the shards cost beside one process with as many cores?

    python benchmarks/corpus.py --rows 1000000 --kills 20
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
from command import Parser, head, row

ANSWER = [
    *("--max-tokens", "8", "--block-length", "8", "--logprobs", "none"),
    *("--temperature", "0.7", "--seed", "7"),
]


def written(folder: Path, num_rows: int) -> Path:
    """Return a folder of four files of JSON lines with that many short prompts."""
    source = folder / "in"
    source.mkdir()
    draw = random.Random(0)
    for number in range(4):
        with (source / f"{number}.jsonl").open("w") as file:
            for line in range(number, num_rows, 4):
                numbers = ",".join(str(draw.randint(1, 99)) for _ in range(3))
                print(json.dumps({"id": line, "prompt": f"{numbers} -> 10"}), file=file)
    return source


def command(source: Path, output: Path, *more: str) -> list[str]:
    """Return the command that answers the corpus."""
    files = ["--input", str(source), "--output", str(output)]
    return [sys.executable, "-m", "dise", "generate", *ANSWER, *files, "--resume", *more]


def seconds_of(arguments: list[str], threads: int) -> float:
    """Return how long a command takes."""
    started = time.perf_counter()
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    subprocess.run(arguments, check=True, capture_output=True, env=environment)
    return time.perf_counter() - started


def kill_at_random(arguments: list[str], num_kills: int) -> tuple[float, int]:
    """Run a command to its end, again each time that it dies, and kill one of its workers, or every
    fourth time the command itself, at random moments. Return the seconds, and the kills.
    """
    draw, kills, started = random.Random(1), 0, time.perf_counter()
    while True:
        driver = subprocess.Popen(arguments, stderr=subprocess.DEVNULL)
        while driver.poll() is None:
            time.sleep(0.2)
            running = psutil.Process(driver.pid).children(recursive=True)
            workers = [one for one in running if is_worker(one)]
            if kills >= num_kills or not workers or draw.random() > 0.04:
                continue
            kills += 1
            victim = psutil.Process(driver.pid) if kills % 4 == 0 else draw.choice(workers)
            victim.kill()
            if victim.pid == driver.pid:
                psutil.wait_procs(running, timeout=60)
        if driver.returncode == 0:
            return time.perf_counter() - started, kills


def is_worker(process: psutil.Process) -> bool:
    """Return whether a process makes shards for Ray."""
    try:
        return "ShardWorker" in " ".join(process.cmdline())
    except psutil.Error:
        return False


def answers(output: Path) -> dict[int, list[tuple[int, str, float]]]:
    """Return the seed, text and score of each row, a list for one that is there several times."""
    found: dict[int, list[tuple[int, str, float]]] = {}
    for path in output.glob("*.jsonl"):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            [best] = record["outputs"]
            answer = record["seed"], best["text"], best["score"]["value"] or 0.0
            found.setdefault(record["id"], []).append(answer)
    return found


def main() -> None:
    """Print the tables."""
    parser = Parser(__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.options(rows=40, kills=1)
    on_ray = ("--ray", "local", "--workers", str(options.workers))
    with TemporaryDirectory() as name:
        folder = Path(name)
        source = written(folder, options.rows)
        run = {kind: command(source, folder / kind) for kind in ("one", "ray")}
        head("run", "seconds", "rows/s", "beside one process")
        one = seconds_of(run["one"], options.workers)
        _tell(f"one process, {options.workers} threads", options.rows, one, one)
        undisturbed = seconds_of([*run["ray"], *on_ray], 1)
        _tell(f"{options.workers} workers", options.rows, undisturbed, one)
        killed = command(source, folder / "killed", *on_ray)
        disturbed, kills = kill_at_random(killed, options.kills)
        _tell(f"{options.workers} workers, {kills} kills", options.rows, disturbed, one)
        expected, found = answers(folder / "one"), answers(folder / "killed")
    common = [(expected[line][0], found[line][0]) for line in expected if line in found]
    print()
    head("rows of the killed run", "number")
    row("lost", len(expected) - len(common))
    row("doubled", sum(len(rows) > 1 for rows in found.values()))
    row("another seed", sum(ours[0] != theirs[0] for ours, theirs in common))
    row("another text", sum(ours[1] != theirs[1] for ours, theirs in common))
    row("largest difference of scores", f"{max(abs(a[2] - b[2]) for a, b in common):.7f}")


def _tell(what: str, num_rows: int, seconds: float, one: float) -> None:
    row(what, f"{seconds:.1f}", f"{num_rows / seconds:.1f}", f"{seconds / one:.2f}")


if __name__ == "__main__":
    main()
