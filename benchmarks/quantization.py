"""What int8 and int4 weights save and cost, and what loading takes, on a random model of 100
million weights.

python benchmarks/quantization.py [--device cpu] [--layers 12] [--rounds 5]

The checkpoint is in bfloat16, in shards of 64 MiB. Memory is that of the process. Errors are
those of the log-probabilities of a text's own tokens against the same weights in float32. Times are
medians of passes over texts of 256 tokens of which 32 are read, on a CPU of processor time, which a
busy machine hardly changes. Linux only; with MALLOC_MMAP_THRESHOLD_=1048576 in the environment the
memory is what loading needs, and not what glibc keeps of it for later.
"""

from __future__ import annotations

import ctypes
import gc
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import random_checkpoints
import torch
from command import Parser, head, resident, row

ROWS: dict[str, dict[str, Any]] = {
    "float32": {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16"},
    "int8": {"dtype": "bfloat16", "quantization": "int8"},
    "int4": {"dtype": "bfloat16", "quantization": "int4"},
}
"""The options of each row."""

SHARD, TOKENS, READ, TEXTS = 64 * 2**20, 256, 32, 8
MIB = 2**20


def settle() -> None:
    """Give freed memory back to the system."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def questions(vocabulary: int) -> list[Any]:
    """Return the Reads of the texts' own tokens, the same in every process."""
    from dise_core import Read, TokenLogProbs

    texts = np.random.default_rng(0).integers(0, vocabulary - 2, (TEXTS, TOKENS))
    positions = np.arange(TOKENS - READ, TOKENS)
    return [Read(ids, positions, TokenLogProbs(ids[positions])) for ids in texts]


def measure(name: str, folder: Path, device: str, rounds: int) -> dict[str, Any]:
    """Return one row: the memory of the model and while it is loaded, log-probabilities, times."""
    from dise_core import LLM

    LLM("countdown", device=device, **ROWS[name]).score("", "1+2=3")  # imports what it will need
    settle()
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    started = time.perf_counter()
    llm = LLM(str(folder), device=device, **ROWS[name])
    loading = time.perf_counter() - started
    peak = resident("VmHWM") - before
    settle()
    held = resident("VmRSS") - before
    reads = questions(llm.predictor.info.vocab_size)
    read = llm.predictor.read
    logprobs = [reading.logprobs.tolist() for reading in read(reads)]
    return {
        "held": held, "peak": peak, "loading": loading, "logprobs": logprobs,
        "one": milliseconds(lambda: read(reads[:1]), rounds, device),
        "many": milliseconds(lambda: read(reads), rounds, device),
    }  # fmt: skip


def milliseconds(run: Callable[[], object], rounds: int, device: str) -> float:
    """Return the median time of a call, after one that is not counted."""
    clock = time.process_time if device == "cpu" else time.perf_counter
    times = []
    for _ in range(rounds + 1):
        started = clock()
        run()
        times.append(clock() - started)
    return statistics.median(times[1:]) * 1e3


def show(name: str, measured: dict[str, Any], exact: np.ndarray) -> None:
    """Print a row of the table."""
    found = np.array(measured["logprobs"])
    error, scores = np.abs(found - exact), np.abs(found.mean(1) - exact.mean(1))
    held, peak = measured["held"], measured["peak"]
    row(name, f"{held:.0f}", f"{peak - held:.0f}", f"{error.mean():.4f}", f"{error.max():.3f}",
        f"{scores.max():.4f}", f"{measured['one']:.0f}", f"{measured['many']:.0f}")  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = Parser(__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--layers", type=int, default=random_checkpoints.RANDOM_100M.layers)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.options(layers=1, rounds=1)
    with tempfile.TemporaryDirectory() as folder:
        size = replace(random_checkpoints.RANDOM_100M, layers=args.layers)
        random_checkpoints.write(Path(folder), size, torch.bfloat16, SHARD)
        files = [path.stat().st_size / MIB for path in Path(folder).glob("*.safetensors")]
        print(f"{sum(files):.0f} MiB in {len(files)} shards of at most {max(files):.0f} MiB\n")
        head("weights", "in memory, MiB", "loading needs above that, MiB", "error, mean, nats",
             "error, max", "score's error, max", "ms, 1 text", "ms, 8 texts")  # fmt: skip
        exact = None
        for name in ROWS:
            measured = measure(name, Path(folder), args.device, args.rounds)
            exact = np.array(measured["logprobs"]) if exact is None else exact
            show(name, measured, exact)


if __name__ == "__main__":
    main()
