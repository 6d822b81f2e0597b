"""What a forward pass of the embedded model costs, and what each thing that was done about it
gains.

python benchmarks/forward_pass.py

64 tokens a sequence if nothing else is said, of which 8 are read, float32. Each row runs in a
process of its own; times are medians of 30 passes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from command import Parser, head, row, whole_reader

TOKENS, READ = 64, 8

ROWS = {
    "1 sequence, in the thread that loaded the model": (1, ()),
    "1 sequence, in another thread": (1, ("--other-thread",)),
    "32 sequences at once": (32, ()),
    "32 sequences, freed memory given back": (32, ("--give-back",)),
    "1 sequence, as transformers runs it": (1, ("--whole",)),
    "32 sequences, as transformers runs them": (32, ("--whole",)),
    "8 sequences at once": (8, ()),
    "64 sequences at once": (64, ()),
    "32 sequences of 61 tokens, unpadded": (32, ("--tokens", "61")),
}

PARTS = {
    "mkldnn::_linear_pointwise": "matmuls",
    "aten::_scaled_dot_product_flash_attention_for_cpu": "attention",
}
"""What of a pass the hardware sets: torch's names of it, and ours."""


def one_pass(count: int, tokens: int = TOKENS, whole: bool = False) -> Callable[[], Any]:
    """Return what runs one pass over `count` sequences."""
    import numpy as np
    import torch

    from dise_adapters.local.decoder.batch import TextBatch
    from dise_core import LLM

    reader: Any = whole_reader("countdown") if whole else LLM("countdown").predictor._reader  # type: ignore[attr-defined]
    ids = np.random.default_rng(0).integers(0, 20, (count, tokens))
    rows = np.flatnonzero(np.arange(count * tokens) % tokens >= tokens - READ)
    batch = TextBatch(ids, None, np.arange(tokens)[None])
    return torch.inference_mode()(lambda: reader._body(batch, rows))


def milliseconds(count: int, tokens: int, other_thread: bool, whole: bool) -> float:
    """Return the time of one pass over `count` sequences."""
    run_pass, times = one_pass(count, tokens, whole), []

    def run() -> None:
        for _ in range(40):
            started = time.perf_counter()
            run_pass()
            times.append(time.perf_counter() - started)

    if other_thread:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    else:
        run()
    return statistics.median(times[10:]) * 1e3


def shares(count: int) -> dict[str, float]:
    """Return the share of a pass over `count` sequences that its parts take, and all else."""
    from torch.profiler import ProfilerActivity, profile

    run_pass = one_pass(count)
    for _ in range(10):
        run_pass()
    with profile(activities=[ProfilerActivity.CPU]) as watched:
        for _ in range(30):
            run_pass()
    found = dict.fromkeys([*PARTS.values(), "all else"], 0.0)
    for each in watched.key_averages():
        found[PARTS.get(each.key, "all else")] += each.self_cpu_time_total
    return {name: spent / sum(found.values()) for name, spent in found.items()}


def main() -> None:
    """Print the table."""
    parser = Parser(__doc__)
    parser.add_argument("--rows", type=int, help="only so many")
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--tokens", type=int, default=TOKENS, help=argparse.SUPPRESS)
    for flag in ("--other-thread", "--give-back", "--whole"):
        parser.add_argument(flag, action="store_true", help=argparse.SUPPRESS)
    args = parser.options(rows=1)
    if not args.give_back:
        from dise_app.terminal.memory import keep_freed_memory

        keep_freed_memory()
    if args.count is not None:
        print(json.dumps(milliseconds(args.count, args.tokens, args.other_thread, args.whole)))
        return
    head("", "ms a pass", "ms a sequence")
    for name, (count, flags) in list(ROWS.items())[: args.rows]:
        command = [sys.executable, __file__, "--count", str(count), *flags]
        found = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        row(name, f"{found:.2f}", f"{found / count:.2f}")
    if args.tiny:
        return
    told = ", ".join(f"{name} {share:.0%}" for name, share in shares(32).items())
    print(f"\nOf 32 sequences at once: {told}")


if __name__ == "__main__":
    main()
