"""LLaDA-8B's shape with random weights on a CPU: what a start and a pass take of each type.

python benchmarks/real_size.py [FOLDER] [--types bfloat16 int8 int4] [--tokens 33 128]
python benchmarks/real_size.py --model diffusion-gemma --types int4 --tokens 356

The second is one of DiffusionGemma's 30 layers, its vocabulary and its head; what is no canvas of
256 is prompt. Writes 15 GiB, or 3, into the folder, once; without one, each time. Each type has its
own process, with the command's memory and its threads' wait: else they spin on cores that others
use. One for which too little is free is refused. Times of a start are of the processor, of a pass
by the clock and of the processor, the least of several. The peak counts mapped pages of the files
too; planned is what the command would ask for before.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from command import Parser, Worker, head, pack, resident, row
from random_checkpoints import DIFFUSION_GEMMA, LLADA_8B, Size, write

from dise_core.threads import cpu_quota, num_cores, thread_settings

OPTIONS: dict[str, dict[str, Any]] = {
    **{name: {"dtype": name} for name in ("float32", "bfloat16", "float16")},
    **{name: {"quantization": name} for name in ("int8", "int4")},
}
MODELS = {"llada-8b": LLADA_8B, "diffusion-gemma": DIFFUSION_GEMMA}
SMALL = {
    "llada-8b": Size(64, 192, 2, 4, 1024),
    "diffusion-gemma": Size(64, 96, 1, 4, 1024, 4, 32, 4, 2, 32, canvas=8),
}
FLAGS = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile",
         "amx_bf16", "amx_int8", "asimddp", "i8mm", "bf16")  # fmt: skip
"""What decides how fast a processor multiplies."""


def processor() -> str:
    """Return the name of the processor, and which of these flags it has."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    parts = (line.partition(":") for line in lines)
    fields = {name.strip(): value.strip() for name, _, value in parts}
    flags = fields.get("flags", fields.get("Features", "")).split()
    name = fields.get("model name", "unknown")
    return f"{name}, {os.cpu_count()} cores: {' '.join(flag for flag in FLAGS if flag in flags)}"


def caches() -> str:
    """Return the sizes of the first core's caches, and how fast all cores read main memory."""
    sizes = list[str]()
    for cache in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (
            (cache / name).read_text().strip() for name in ("level", "type", "size")
        )
        if kind != "Instruction":
            sizes.append(f"L{level} {size}iB")
    numbers, times = torch.ones(2**26, dtype=torch.int64), list[float]()
    for _ in range(5):
        started = time.perf_counter()
        numbers.max()
        times.append(time.perf_counter() - started)
    return f"{', '.join(sizes)}; memory is read at {numbers.nbytes / min(times) / 1e9:.0f} GB/s"


def measured(folder: str, kind: str, tokens: list[int], rounds: int) -> dict[str, Any]:
    """Return what a load takes, and passes over one text of each length."""
    from dise_adapters.local.loading.fits import Claim
    from dise_core import LLM, InputError, Read, TokenLogProbs

    before, faults = os.times(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    try:
        llm = LLM(folder, device="cpu", max_cache_tokens=64, **OPTIONS[kind])
    except InputError as error:
        return {"refused": str(error)}
    after, used = os.times(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    if kind == "int8":
        pack(llm)
    passes, length = [], llm.predictor.info.block_length
    claim: Any = Claim.of(llm.predictor._checkpoint, llm.predictor._config)  # type: ignore[attr-defined]
    for count in tokens:
        ids = np.random.default_rng(0).integers(0, llm.predictor.info.vocab_size - 2, count)
        start, times = max(0, count - (length or count)), []
        reads = [Read(ids, np.arange(start, count), TokenLogProbs(ids[start:]), start=start)]
        for _ in range(rounds):
            started = time.perf_counter(), time.process_time()
            llm.predictor.read(reads)
            times.append((time.perf_counter() - started[0], time.process_time() - started[1]))
        passes.append(tuple(map(min, zip(*times, strict=True))))
    seconds = after.user + after.system - before.user - before.system
    memory = {"peak": resident("VmHWM") / 1024, "planned": claim.sizes_in_use["cpu"][1] / 2**30}
    return {"start": seconds, "faults": used, "passes": passes, **memory}


def main() -> None:
    """Print the table, or answer for it."""
    parser = Parser(__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--model", choices=MODELS, default="llada-8b")
    parser.add_argument("--types", nargs="+", choices=OPTIONS, default=[*OPTIONS])
    parser.add_argument("--tokens", nargs="+", type=int, default=[33, 128])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", action="store_true", help="answer on standard input")
    parser.add_argument("--small", action="store_true", help="a model of small layers")
    args = parser.options(types=["bfloat16", "int4"], tokens=[9], rounds=1, small=True)
    if args.serve:
        print("answer", json.dumps(measured(*json.loads(sys.stdin.readline()))), flush=True)
        return
    with tempfile.TemporaryDirectory() as temporary:
        table(args, args.folder or Path(temporary))


def table(args: Any, folder: Path) -> None:
    """Write the model, and print a row for each type."""
    size = (SMALL if args.small else MODELS)[args.model]
    write(folder, size, torch.bfloat16)
    print(processor(), caches(), sep="\n")
    columns = (f"pass of {count}, s (processor)" for count in args.tokens)
    head("type", "start, s", "page faults, M", "peak, GiB", "planned", *columns)
    for kind in args.types:
        waits = thread_settings(os.environ, num_cores(), cpu_quota())
        worker = Worker(__file__, "--serve", **waits)
        found = worker.ask(str(folder), kind, args.tokens, args.rounds)
        worker.close()
        if "refused" in found:
            row(kind, found["refused"])
            continue
        passes = (f"{wall:.2f} ({used:.2f})" for wall, used in found["passes"])
        faults = f"{found['faults'] / 1e6:.2f}"
        memory = (f"{found[name]:.2f}" for name in ("peak", "planned"))
        row(kind, f"{found['start']:.1f}", faults, *memory, *passes)


if __name__ == "__main__":
    from dise_app.terminal.heap import keep_freed_memory

    keep_freed_memory()
    main()
