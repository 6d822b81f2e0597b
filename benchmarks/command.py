"""What the benchmarks share: options, tables, memory, and ways that are timed in turn."""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import psutil

T = TypeVar("T")

Times = dict[str, list[float]]


class Parser(argparse.ArgumentParser):
    """Reads a benchmark's options; --tiny sets the smallest, which show only that it runs."""

    def __init__(self, description: str | None) -> None:
        super().__init__(
            description=description, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        self.add_argument("--tiny", action="store_true", help="show that it runs, measure nothing")

    def options(self, **tiny: object) -> argparse.Namespace:
        """Return the options of the command line; tiny: the defaults under --tiny."""
        if self.parse_known_args()[0].tiny:
            self.set_defaults(**tiny)
        return self.parse_args()


def head(*names: str) -> None:
    """Print the head of a table, whose first column holds names."""
    row(*names)
    row("---", *["---:"] * (len(names) - 1))


def row(*cells: object) -> None:
    """Print a row of a table."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def resident(field: str) -> float:
    """Return a field of this process's memory status in MiB; NaN where the system tells none."""
    found = re.search(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else math.nan


@contextmanager
def server(*options: str) -> Iterator[tuple[str, psutil.Process]]:
    """Yield the address and the process of `dise serve` with these options."""
    import psutil

    run = "from dise_app.cli.main import main; main()"
    command = [sys.executable, "-P", "-c", run, "serve", "--port", "0", *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdout is not None
        ready = next((line for line in process.stdout if " is ready " in line), "")
        address = re.search(r"http://\S+", ready)
        assert address is not None
        try:
            yield address[0], psutil.Process(process.pid)
        finally:
            process.terminate()


class EndedError(Exception):
    """A worker's process ended before it answered; its own words are on standard error."""


class Worker:
    """A Python process that answers each line of JSON by a line "answer JSON"."""

    def __init__(self, *command: str, **environment: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *command], text=True, env=os.environ | environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def ask(self, *question: Any) -> Any:
        """Return the answer to a question. Raises EndedError where there will be none."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with suppress(BrokenPipeError):
            print(json.dumps(question), file=stdin, flush=True)
        for line in stdout:
            if line.startswith("answer "):
                return json.loads(line.partition(" ")[2])
        code = self._process.wait()
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        raise EndedError(f"its process ended {how}")

    def close(self) -> None:
        """End the process."""
        with suppress(BrokenPipeError):
            self._process.communicate(timeout=60)


def whole_reader(model: str) -> Any:
    """Return the reader of a model that transformers computes whole, with its own attention."""
    from dise_core import LLM

    reader = LLM(model, attn_implementation="eager").predictor._reader  # type: ignore[attr-defined]
    reader._body._model.set_attn_implementation("sdpa")
    return reader


def settled(model: T) -> T:
    """Return the model, and spare all that exists from garbage collection, as a server does."""
    gc.collect()
    gc.freeze()
    return model


def pack(llm: Any) -> None:
    """Read a token so often that int8 is packed, as it is after the first minutes of a service."""
    import numpy as np

    from dise_adapters.local.decoder.integers import NUM_TURNS, PACKED_FROM
    from dise_core import Read, TokenLogProbs

    zero = np.zeros(1, np.int64)
    for _ in range(PACKED_FROM + NUM_TURNS):
        llm.predictor.read([Read(zero, zero, TokenLogProbs(zero))])


def take_turns(ways: Mapping[str, Callable[[], Any]], rounds: int) -> tuple[Times, dict[str, Any]]:
    """Return the seconds of each way in each round, after one that is not counted, and what each
    returned last. They take turns, so that a machine's moods hit all alike.
    """
    times: Times = {name: [] for name in ways}
    results = {name: way() for name, way in ways.items()}
    for _ in range(rounds):
        for name, way in ways.items():
            started = time.perf_counter()
            results[name] = way()
            times[name].append(time.perf_counter() - started)
    return times, results


def ratios(times: Times, one: str, other: str) -> list[float]:
    """Return how many times longer `one` took than `other`, round by round."""
    return [a / b for a, b in zip(times[one], times[other], strict=True)]


def spread(values: Sequence[float]) -> str:
    """Return the median and the range as text."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"
