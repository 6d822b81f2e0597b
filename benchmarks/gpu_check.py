"""Whether a GPU computes what a CPU does, how fast, and in how much memory, at the shapes of
LLaDA-8B and LLaDA2-mini with random weights: one table.

make gpu-check, or python benchmarks/gpu_check.py [--models llada-8b llada2-mini] [--folder DIR]
python benchmarks/gpu_check.py --tiny   the same at a size that any CPU runs
python benchmarks/gpu_check.py --device cpu --models random-100m   what int8 and int4 save on a CPU

Errors are those of log-probabilities at two layers of the full width, against a CPU in float32. A
pass is over --texts of --tokens, of which 32 each are read; its share is that of the rate of a
large matmul in bfloat16. Needs 50 GB of disk below --folder, which keeps the checkpoints if it is
named; nothing is downloaded. On a CPU a pass is measured in processor time, which a busy machine
hardly changes, and the memory is that of the process: set MALLOC_MMAP_THRESHOLD_=1048576.
"""

from __future__ import annotations

import ctypes
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import random_checkpoints
import torch
from command import Parser, head, resident, row
from random_checkpoints import Size

MODELS = {
    "llada-8b": random_checkpoints.LLADA_8B,
    "llada2-mini": random_checkpoints.LLADA2_MINI,
    "random-100m": random_checkpoints.RANDOM_100M,
}
TINY = {
    "llada-8b": Size(256, 768, 3, 8, 512),
    "llada2-mini": Size(128, 320, 3, 4, 512, 2, 32, 8, 2, 64, 4),
    "random-100m": Size(128, 384, 3, 2, 512),
}
"""The same formats at a size for a CPU."""

ROWS: dict[str, dict[str, Any]] = {
    "float32": {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16"},
    "int8": {"dtype": "bfloat16", "quantization": "int8"},
    "int4": {"dtype": "bfloat16", "quantization": "int4"},
}
"""The options of each row."""

READ, SHARD, GIB = 32, 4 * 2**30, 2**30
HEADS = ("model", "weights", "error, mean", "error, max", "load, s", "host, GiB", "model, GiB",
         "pass, ms", "tokens/s", "TFLOP/s", "of a matmul", "peak, GiB")  # fmt: skip


@dataclass(frozen=True)
class Work:
    """The texts of a pass, and the device that runs it."""

    texts: int
    tokens: int
    rounds: int
    device: str

    def reads(self, vocabulary: int) -> list[Any]:
        """Return the Reads of the last tokens of random texts."""
        from dise_core import Read, TokenLogProbs

        shape = (self.texts, self.tokens)
        texts = np.random.default_rng(0).integers(0, vocabulary - 2, shape)
        positions = np.arange(self.tokens - READ, self.tokens)
        return [Read(ids, positions, TokenLogProbs(ids[positions])) for ids in texts]

    def flops(self, size: Size) -> float:
        """Return the operations of a pass's matmuls; the last layer runs at the read positions."""
        tokens, read = self.texts * self.tokens, self.texts * READ
        heads = size.heads * size.head_dim
        keys = (size.key_heads or size.heads) * size.head_dim
        projections, rest = size.width * (heads + 2 * keys), size.width * heads
        rest += (
            3
            * size.width
            * (size.expert_inner * (size.per_token + 1) if size.experts else size.inner)
        )
        queries = tokens * (size.layers - 1) + read
        products = tokens * size.layers * projections + queries * rest
        return 2.0 * (products + 2 * queries * self.tokens * heads
                      + read * size.width * size.vocabulary)  # fmt: skip


def matmul_rate(device: str, dtype: torch.dtype, side: int) -> float:
    """Return the operations a second of a large square matmul."""
    one, other = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    times = []
    for _ in range(8):
        synchronize(device)
        started = time.perf_counter()
        one @ other
        synchronize(device)
        times.append(time.perf_counter() - started)
    return 2.0 * side**3 / statistics.median(times[2:])


def synchronize(device: str) -> None:
    """Wait for what runs on a GPU."""
    if device != "cpu":
        torch.cuda.synchronize(device)


def logprobs(folder: Path, work: Work, **options: Any) -> np.ndarray:
    """Return the log-probabilities of two texts' own tokens, [2, READ]."""
    from dise_core import LLM

    predictor = LLM(str(folder), **options).predictor
    few = replace(work, texts=2, tokens=min(work.tokens, 128))
    reads = few.reads(predictor.info.vocab_size)
    return np.array([reading.logprobs for reading in predictor.read(reads)])


def speed(folder: Path, size: Size, work: Work, rate: float, **options: Any) -> Iterator[str]:
    """Yield the cells of a row from loading on."""
    from dise_core import LLM

    LLM("countdown", device=work.device, **options).score("", "1+2=3")  # imports what it will need
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    on_gpu = work.device != "cpu"
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    started = time.perf_counter()
    predictor = LLM(str(folder), device=work.device, **options).predictor
    synchronize(work.device)
    yield f"{time.perf_counter() - started:.1f}"
    yield f"{(resident('VmHWM') - before) / 1024:.2f}"
    held = torch.cuda.memory_allocated() / GIB if on_gpu else (resident("VmRSS") - before) / 1024
    yield f"{held:.2f}"
    reads, times = work.reads(predictor.info.vocab_size), []
    clock = time.perf_counter if on_gpu else time.process_time
    for _ in range(work.rounds + 1):
        begun = clock()
        predictor.read(reads)
        times.append(clock() - begun)
    seconds = statistics.median(times[1:])
    done = work.flops(size) / seconds
    yield f"{seconds * 1e3:.1f}"
    yield f"{work.texts * work.tokens / seconds:,.0f}"
    yield f"{done / 1e12:.2f}"
    yield f"{done / rate:.0%}"
    yield f"{torch.cuda.max_memory_allocated() / GIB:.2f}" if on_gpu else "-"


def rows(name: str, size: Size, root: Path, work: Work, side: int) -> Iterator[Sequence[str]]:
    """Yield one row for each type of weights."""
    shallow, whole = root / f"{name}-2-layers", root / name
    drawn = (torch.bfloat16, SHARD, work.device)
    random_checkpoints.write(shallow, replace(size, layers=2), *drawn)
    exact = logprobs(shallow, work, device="cpu", dtype="float32")
    random_checkpoints.write(whole, size, *drawn)
    rate = matmul_rate(work.device, torch.bfloat16, side)
    for kind, options in ROWS.items():
        error = np.abs(logprobs(shallow, work, device=work.device, **options) - exact)
        cells = [name, kind, f"{error.mean():.5f}", f"{error.max():.4f}"]
        measured = kind != "float32" or name == "random-100m"
        cells += speed(whole, size, work, rate, **options) if measured else ["-"] * 8
        yield cells


def main() -> None:
    """Print the table."""
    parser = Parser(__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=[*MODELS][:2])
    parser.add_argument("--texts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="keeps the checkpoints for the next time")
    args = parser.options(device="cpu", texts=2, tokens=64, rounds=1)
    if args.device != "cpu" and not torch.cuda.is_available():
        sys.exit("gpu_check: there is no GPU here; --tiny runs the same on a CPU")
    work = Work(args.texts, args.tokens, args.rounds, args.device)
    device = "CPU" if args.device == "cpu" else torch.cuda.get_device_name(args.device)
    print(f"{device}, torch {torch.__version__}, {args.texts} texts of {args.tokens} tokens\n")
    head(*HEADS)
    with tempfile.TemporaryDirectory() as temporary:
        root = args.folder or Path(temporary)
        for name in args.models:
            size = (TINY if args.tiny else MODELS)[name]
            for cells in rows(name, size, root, work, 512 if args.tiny else 8192):
                row(*cells)


if __name__ == "__main__":
    main()
