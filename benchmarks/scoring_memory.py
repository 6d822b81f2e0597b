"""Peak memory of scoring texts under a large vocabulary, above the weights: all logits of each, and
ours.

python benchmarks/scoring_memory.py [--texts 1] [--tokens 4096] [--vocabulary 126464] [--width 512]

Each way runs in a process of its own on a checkpoint with random weights in LLaDA's format. Buffers
of 4 MiB and more go back to the system as soon as they are freed: what is counted is what scoring
needs, not what glibc happens to keep. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import random_llada
from against_naive import Naive
from command import Parser, head, row

WAYS = ("naive", "dise")
GIVE_BACK = {"MALLOC_MMAP_THRESHOLD_": str(4 * 2**20)}


def measure(way: str, folder: Path, texts: int, tokens: int, vocabulary: int) -> None:
    """Score the texts once; print, as JSON, the mean score, the seconds, and the peak memory above
    that after loading.
    """
    from dise_core import LLM, ScoringParams

    many = np.random.default_rng(0).integers(0, vocabulary - 2, (texts, tokens))
    if way == "naive":
        naive = Naive(str(folder), vocabulary - 1)
        weights = [*naive.body.parameters(), *naive.head.parameters()]

        def score() -> float:
            return float(np.mean([naive.score(ids.tolist(), tokens) for ids in many]))
    else:
        llm = LLM(str(folder))
        reader: Any = llm.predictor._reader  # type: ignore[attr-defined]
        weights = [reader._body._embed.keywords["weight"]]

        def score() -> float:
            answers = llm.score([[]] * texts, many.tolist(), ScoringParams(selector="full"))
            return float(np.mean([answer.outputs[0].score.value for answer in answers]))

    for weight in weights:
        weight.sum()  # until they are used the weights stay in their file
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    started = time.perf_counter()
    value = score()
    record = {
        "way": way,
        "score": value,
        "seconds": time.perf_counter() - started,
        "mib": memory("VmHWM") - before,
    }
    print(json.dumps(record))


def memory(field: str) -> float:
    """Return a field of this process's memory status in MiB."""
    status = Path("/proc/self/status").read_text()
    return (
        int(next(line for line in status.splitlines() if line.startswith(field)).split()[1]) / 1024
    )


def main() -> None:
    """Print one line for each way, and the ratio."""
    parser = Parser(__doc__)
    parser.add_argument("--texts", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--vocabulary", type=int, default=126464)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.options(tokens=64, vocabulary=512, width=128)
    if args.way:
        measure(args.way, args.folder, args.texts, args.tokens, args.vocabulary)
        return
    with tempfile.TemporaryDirectory() as folder:
        random_llada.write(
            Path(folder), args.vocabulary, args.width, layers=2, max_length=args.tokens
        )
        rows = []
        for way in WAYS:
            sizes = ("texts", "tokens", "vocabulary")
            options = [f"--{name}={getattr(args, name)}" for name in sizes]
            command = [sys.executable, __file__, f"--way={way}", f"--folder={folder}", *options]
            done = subprocess.run(
                command, check=True, capture_output=True, text=True, env=os.environ | GIVE_BACK
            )
            rows.append(json.loads(done.stdout))
    print(
        f"{args.texts} x {args.tokens} tokens, V = {args.vocabulary}, d = {args.width}, 2 layers\n"
    )
    head("float32", "MiB above the weights", "seconds", "score")
    for found in rows:
        row(found["way"], *(f"{found[name]:.2f}" for name in ("mib", "seconds")), found["score"])


if __name__ == "__main__":
    main()
