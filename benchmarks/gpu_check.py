"""Whether a GPU computes what a CPU does, how fast, and in how much memory, at the shapes of
LLaDA-8B and LLaDA2-mini with random weights.

make gpu-check, or PYTHONPATH=. python benchmarks/gpu_check.py [--probe] [--models llada-8b]
python benchmarks/gpu_check.py --tiny   the same at a size that any CPU runs
python benchmarks/gpu_check.py --device cpu --models random-100m   what int8 and int4 save on a CPU
python benchmarks/gpu_check.py --served http://HOST:PORT#FOLDER   how far what `vllm serve` reads of
DiffusionGemma is from transformers, which loads the same folder in bfloat16

A GPU is first probed for about three minutes, LLaDA-8B's weights made on it (--probe: no more):
torch's choice of attention, and what a new shape takes; passes, the first time and again, as DiSE
chooses attention and with cuDNN allowed everywhere, how often the host waits (a copy back to it
does), and how much of the batches is padding, which attention alone sees: a kernel for texts of any
lengths would pay where "lengths differ" takes longer than "ends" by about that share. In the table
errors are those of log-probabilities at two layers of the full width, against a CPU in float32. A
pass is over --texts of --tokens, of which 32 each are read; its share is that of the rate of a
large matmul in bfloat16. Needs 36 GB of disk below --folder, one model at a time; nothing is
downloaded. On a CPU a pass is measured in processor time, which a busy machine hardly changes, and
the memory is that of the process: set MALLOC_MMAP_THRESHOLD_=1048576.

An image with torch and transformers alone lacks the wheels of outlines-core, pluggy, pydantic (with
pydantic-core, annotated-types, typing-inspection), tenacity and psutil.
"""

from __future__ import annotations

import ctypes
import gc
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import fake_gpu
import numpy as np
import random_checkpoints
import torch
from command import Parser, head, resident, row
from random_checkpoints import Size
from torch.nn.attention import SDPBackend

from dise_adapters.checkpoint import weights
from dise_adapters.checkpoint.hub import model_folder
from dise_adapters.local.decoder.batch import TextBatch
from dise_adapters.local.reading import reader
from dise_adapters.local.reading.batching import text_batch
from dise_core import LLM, Read, SamplingParams, TokenLogProbs, completed
from tests import full_size
from tests.reference_diffusion_gemma import Reference

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
        shape = (self.texts, self.tokens)
        texts = np.random.default_rng(0).integers(0, vocabulary - 2, shape)
        positions = np.arange(self.tokens - READ, self.tokens)
        return [Read(ids, positions, TokenLogProbs(ids[positions])) for ids in texts]

    def flops(self, size: Size) -> float:
        """Return the operations of a pass's matmuls; the last layer runs at the read positions."""
        tokens, read = self.texts * self.tokens, self.texts * READ
        heads = size.heads * size.head_dim
        keys = (size.key_heads or size.heads) * size.head_dim
        inner = size.expert_inner * (size.per_token + 1) if size.experts else size.inner
        queries = tokens * (size.layers - 1) + read
        products = tokens * size.layers * size.width * (heads + 2 * keys)
        products += queries * (size.width * (heads + 3 * inner) + 2 * self.tokens * heads)
        return 2.0 * (products + read * size.width * size.vocabulary)


def matmul_rate(device: str, dtype: torch.dtype, side: int) -> float:
    """Return the operations a second of a large square matmul."""
    one, other = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    times = [seconds(device, lambda: one @ other) for _ in range(8)]
    return 2.0 * side**3 / statistics.median(times[2:])


def seconds(device: str, call: Callable[[], object]) -> float:
    """Return how long it takes until the device has done what is called."""
    synchronize(device)
    started = time.perf_counter()
    call()
    synchronize(device)
    return time.perf_counter() - started


def synchronize(device: str) -> None:
    """Wait for what runs on a GPU."""
    if device != "cpu":
        torch.cuda.synchronize(device)


def logprobs(folder: Path, work: Work, **options: Any) -> np.ndarray:
    """Return the log-probabilities of two texts' own tokens, [2, READ]."""
    predictor = LLM(str(folder), **options).predictor
    few = replace(work, texts=2, tokens=min(work.tokens, 128))
    reads = few.reads(predictor.info.vocab_size)
    return np.array([reading.logprobs for reading in predictor.read(reads)])


def speed(folder: Path, size: Size, work: Work, rate: float, **options: Any) -> Iterator[str]:
    """Yield the cells of a row from loading on."""
    LLM("countdown", device=work.device, **options).score("", "1+2=3")  # imports what it will need
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    on_gpu = work.device != "cpu"
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    before = resident("VmRSS")
    with suppress(OSError):  # some sandboxes have none
        Path("/proc/self/clear_refs").write_text("5")
    llm = LLM(str(folder), device=work.device, lazy=True, **options)
    yield f"{seconds(work.device, llm.engine.load):.1f}"
    predictor = llm.predictor
    yield f"{(resident('VmHWM') - before) / 1024:.2f}"
    held = torch.cuda.memory_allocated() / GIB if on_gpu else (resident("VmRSS") - before) / 1024
    yield f"{held:.2f}"
    reads, times = work.reads(predictor.info.vocab_size), []
    clock = time.perf_counter if on_gpu else time.process_time
    for _ in range(work.rounds + 1):
        begun = clock()
        predictor.read(reads)
        times.append(clock() - begun)
    spent = statistics.median(times[1:])
    done = work.flops(size) / spent
    yield from (f"{spent * 1e3:.1f}", f"{work.texts * work.tokens / spent:,.0f}")
    yield from (f"{done / 1e12:.2f}", f"{done / rate:.0%}")
    yield f"{torch.cuda.max_memory_allocated() / GIB:.2f}" if on_gpu else "-"


def rows(name: str, size: Size, root: Path, work: Work, side: int) -> Iterator[Sequence[str]]:
    """Yield one row for each type of weights."""
    drawn = (torch.bfloat16, SHARD, work.device)
    shallow = random_checkpoints.write(root / "few", replace(size, layers=2), *drawn)
    exact = logprobs(shallow, work, device="cpu", dtype="float32")
    whole = random_checkpoints.write(root / "whole", size, *drawn)
    rate = matmul_rate(work.device, torch.bfloat16, side)
    for kind, options in ROWS.items():
        error = np.abs(logprobs(shallow, work, device=work.device, **options) - exact)
        cells = [name, kind, f"{error.mean():.5f}", f"{error.max():.4f}"]
        measured = kind != "float32" or name == "random-100m"
        cells += speed(whole, size, work, rate, **options) if measured else ["-"] * 8
        yield cells


def attention(device: str, spread: int) -> None:
    """Print what a new shape of attention takes as torch chooses, and the same again."""
    head("attention", "backend", "new shape, ms", "again, ms")
    for is_masked in (False, True):
        times = []
        for keys in range(300, 300 + spread):
            query, key = (torch.randn(1, 32, n, 128, device=device).bfloat16() for n in (32, keys))
            mask = torch.ones(1, 1, 1, keys, dtype=torch.bool, device=device)
            given = (query, key, key, mask if is_masked else None)
            attend = partial(torch.nn.functional.scaled_dot_product_attention, *given)
            times.append([seconds(device, attend) * 1e3 for _ in range(2)])
        chosen = SDPBackend(torch._fused_sdp_choice(*given)).name
        row("masked" if is_masked else "plain", chosen, *np.median(times, axis=0).round(2))


def probe(root: Path, work: Work, size: Size, is_tiny: bool) -> None:
    """Print what the device does with LLaDA-8B's weights, made on it."""
    attention(work.device, 2 if is_tiny else 8)
    sizes = {"d_model": size.width, "n_heads": size.heads, "mlp_hidden_size": size.inner,
             "vocab_size": 1024, "embedding_size": 1024, "mask_token_id": 1023,
             "eos_token_id": 1022} if is_tiny else {}  # fmt: skip
    few = full_size.write(root / "few", "LLaDA-8B", layers=2, **sizes)
    whole = full_size.write(root / "whole", "LLaDA-8B", layers=size.layers, **sizes)
    with mock.patch.object(weights, "safe_open", full_size.drawn(torch.device(work.device))):
        exact = logprobs(few, work, device="cpu", dtype="float32")
        error = np.abs(logprobs(few, work, device=work.device, dtype="bfloat16") - exact)
        llm = LLM(str(whole), device=work.device, dtype="bfloat16")
    reads = work.reads(full_size.WORDS)
    least = min(seconds(work.device, lambda: llm.predictor.read(reads)) for _ in range(4))
    rate = matmul_rate(work.device, torch.bfloat16, 256 if is_tiny else 8192)
    print(f"\nlog-probabilities: {error.mean():.5f} off, {error.max():.4f} at most; a pass takes "
          f"{least * 1e3:.1f} ms, {work.flops(size) / least / rate:.0%} of a matmul\n")  # fmt: skip
    head("attention", "what is read", "first, s", "again, s", "host waits", "padding")
    everywhere = mock.patch.object(reader, "without_plans", return_value=nullcontext())
    for name, chosen in (("DiSE's choice", nullcontext()), ("torch's", everywhere)):
        with chosen:
            rounds = [list(timed_cases(llm, work.device, is_tiny)) for _ in range(2)]
        for (case, first, *_), (_, again, waits, padding) in zip(*rounds, strict=True):
            row(name, case, f"{first:.3f}", f"{again:.3f}", waits, f"{padding:.1%}")


def timed_cases(llm: LLM, device: str, is_tiny: bool) -> Iterator[tuple[str, float, int, float]]:
    """Yield fake_gpu's cases, their seconds, how often the host waited for the device, and the
    share of padding in their batches.
    """
    real = list[np.ndarray]()

    def seen(*args: Any) -> TextBatch:
        batch = text_batch(*args)
        whole = np.ones(batch.input_ids.size, bool)
        real.append(whole if batch.is_real is None else batch.is_real.ravel())
        return batch

    with (
        warnings.catch_warnings(record=True) as told,
        mock.patch.object(reader, "text_batch", seen),
    ):
        warnings.simplefilter("always")
        if device != "cpu":
            torch.cuda.set_sync_debug_mode("warn")
        begun = time.perf_counter()
        for case in fake_gpu.cases(llm, *((4, 96) if is_tiny else (32, 512))):
            synchronize(device)
            waits = sum("synchroniz" in str(warning.message) for warning in told)
            yield case, time.perf_counter() - begun, waits, 1 - np.concatenate(real).mean()
            told.clear()
            real.clear()
            begun = time.perf_counter()
    if device != "cpu":
        torch.cuda.set_sync_debug_mode("default")


def served(address: str, device: str) -> None:
    """Print answers that a vLLM server writes, and how far its reads of them are from those of
    transformers' own encoder and decoder.
    """
    llm = LLM(address)
    info = llm.predictor.info
    [answer] = llm.generate("Why is the sky blue?", SamplingParams(max_tokens=600, n=4))
    folder = model_folder(address.partition("#")[2], None, None)
    reference = Reference(folder, torch.float32 if device == "cpu" else torch.bfloat16, device)
    head("answer", "tokens", "error, mean", "error, max", "DiSE, vLLM", "the same, transformers",
         "read, s")  # fmt: skip
    start = len(answer.prompt_token_ids)
    for output in answer.outputs:
        ids = np.array([*answer.prompt_token_ids, *output.token_ids])
        positions = np.arange(start, len(ids))
        read = Read(ids, positions, TokenLogProbs(ids[positions]), start=start)
        begun = time.perf_counter()
        [reading] = llm.predictor.read([read])
        spent = time.perf_counter() - begun
        whole = completed(read, info).token_ids
        exact = reference.logprobs(whole, start)[np.arange(len(positions)), ids[positions]]
        error = np.abs(reading.logprobs - exact)
        means = (f"{values.mean():.4f}" for values in (reading.logprobs, exact))
        row(repr(output.text[:20]), len(positions), f"{error.mean():.5f}", f"{error.max():.4f}",
            *means, f"{spent:.2f}")  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = Parser(__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=[*MODELS][:2])
    parser.add_argument("--texts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="of the files, deleted after each model")
    parser.add_argument("--served", metavar="URL#FOLDER", help="a vLLM server of DiffusionGemma")
    parser.add_argument("--probe", action="store_true", help="probe the device, and no more")
    args = parser.options(device="cpu", texts=2, tokens=64, rounds=1)
    if args.device != "cpu" and not torch.cuda.is_available():
        sys.exit("gpu_check: there is no GPU here; --tiny runs the same on a CPU")
    if args.served:
        return served(args.served, args.device)
    work = Work(args.texts, args.tokens, args.rounds, args.device)
    device = "CPU" if args.device == "cpu" else torch.cuda.get_device_name(args.device)
    print(f"{device}, torch {torch.__version__}, {args.texts} texts of {args.tokens} tokens\n")
    sizes = TINY if args.tiny else MODELS
    if args.tiny or args.device != "cpu":
        with tempfile.TemporaryDirectory() as root:
            probe(Path(root), work, sizes["llada-8b"], args.tiny)
    if args.probe:
        return
    print()
    head(*HEADS)
    for name in args.models:
        with tempfile.TemporaryDirectory(dir=args.folder) as root:
            for cells in rows(name, sizes[name], Path(root), work, 512 if args.tiny else 8192):
                row(*cells)


if __name__ == "__main__":
    main()
