"""What 16, 8 and 4 bits of a weight save and cost: one layer by rows, and a model's errors.

python benchmarks/quantization.py [--rows 1 16 33 128] [--rounds 7] [--texts 40]

The first table is of one layer, 12288 x 4096, in ms by the clock, with the caches emptied before
each product. Q4_0 is int4 of weights that a file rounded so; fused is torch's own product of int4
and bfloat16, which is not used. The second is of a random model of 90 million weights, against the
same in float32: nats a token, and a score's, the mean of its text. The third is how far int4 moves
weights, as a share of their size; exact scales are those of Q4_0.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from command import Parser, head, row
from random_checkpoints import Size, write
from torch import Tensor

MODEL, LAYER = Size(768, 2304, 12, 12, 8192), (12288, 4096)
TOKENS, EMPTIED = 96, 2**24
"""Tokens of a text, and float32 numbers that fill the caches."""


def in_q4_0(weight: Tensor) -> Tensor:
    """Return weights as Q4_0 rounds them: a block's largest, either way, is -8 of its steps."""
    blocks = weight.reshape(-1, 32)
    largest = blocks.gather(1, blocks.abs().argmax(1, keepdim=True))
    step = (largest / -8).half().float()
    return ((blocks / step).round().clamp(-8, 7) * step).view_as(weight)


def layers(shape: tuple[int, int]) -> dict[str, Callable[[Tensor], Tensor]]:
    """Return the ways to multiply."""
    from dise_adapters.local.decoder.integers import Int4Linear, int8_linear
    from dise_adapters.local.decoder.linear import linear

    weight, block = torch.randn(shape) / 50, 32
    int4, of_file, int8 = Int4Linear([weight]), Int4Linear([in_q4_0(weight)]), int8_linear([weight])
    whole, half = linear([weight]), linear([weight.bfloat16()])
    ways = {"float32": whole, "bfloat16": lambda states: half(states.bfloat16())}
    ways |= {"int8": int8, "int4": int4, "Q4_0": of_file}
    if hasattr(torch.ops.aten, "_weight_int4pack_mm_for_cpu") and not shape[0] % 64:
        counts = torch.randint(0, 16, shape, dtype=torch.int32)
        packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(counts, 1)
        scales = torch.rand(shape[1] // block, shape[0], 2).bfloat16()
        ways["fused"] = lambda states: torch.ops.aten._weight_int4pack_mm_for_cpu(
            states.bfloat16(), packed, block, scales
        )
    return ways


def errors(folder: Path, kind: dict[str, str], texts: list[np.ndarray]) -> np.ndarray:
    """Return the log-probabilities of the texts' own tokens, [texts, tokens]."""
    from dise_core import LLM, Read, TokenLogProbs

    reads = [Read(ids, np.arange(len(ids)), TokenLogProbs(ids)) for ids in texts]
    readings = LLM(str(folder), device="cpu", **kind).predictor.read(reads)  # type: ignore[arg-type]
    return np.stack([reading.logprobs for reading in readings])


@torch.inference_mode()
def main() -> None:
    """Print the tables."""
    from dise_adapters.local.decoder.integers import NUM_TURNS, PACKED_FROM, Int4Linear

    parser = Parser(__doc__)
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 4, 8, 16, 33, 64, 128, 256])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--texts", type=int, default=40)
    parser.add_argument("--small", action="store_true", help="small layers")
    args = parser.options(rows=[1, 16], rounds=1, texts=1, small=True)
    shape = (128, 128) if args.small else LAYER
    model = Size(64, 96, 2, 2, 1024) if args.small else MODEL
    torch.manual_seed(0)
    torch.set_num_threads(len(os.sched_getaffinity(0)))

    ways, filling = layers(shape), torch.zeros(EMPTIED)
    for _ in range(PACKED_FROM + NUM_TURNS + 1):
        ways["int8"](torch.randn(1, shape[1]))
    head("rows", *ways)
    for count in args.rows:
        states, cells = torch.randn(count, shape[1]), list[str]()
        for way in ways.values():
            way(states)
            times = list[float]()
            for _ in range(args.rounds):
                filling.add_(1)
                started = time.perf_counter()
                way(states)
                times.append(time.perf_counter() - started)
            cells.append(f"{min(times) * 1e3:.1f}")
        row(count, *cells)

    print()
    head("weights", "error, mean", "error, max", "score's error, max")
    random = np.random.default_rng(0)
    texts = [random.integers(0, model.vocabulary - 2, TOKENS) for _ in range(args.texts)]
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), model, torch.bfloat16)
        expected = errors(Path(folder), {"dtype": "float32"}, texts)
        for name in ("bfloat16", "int8", "int4"):
            kind = {"dtype" if name == "bfloat16" else "quantization": name}
            off = errors(Path(folder), kind, texts) - expected
            row(name, f"{abs(off).mean():.4f}", f"{abs(off).max():.3f}",
                f"{abs(off.mean(1)).max():.4f}")  # fmt: skip

    print()
    head("weights drawn from", "int4", "exact scales")
    for name, drawn in (
        ("a Gaussian", torch.randn(1024, 4096)),
        ("Student's t, 3 degrees", torch.distributions.StudentT(3.0).sample((1024, 4096))),
    ):
        ours = Int4Linear([drawn]).weight(torch.float32)
        row(name, *(f"{float((made - drawn).norm() / drawn.norm()):.4f}"
                    for made in (ours, in_q4_0(drawn))))  # fmt: skip


if __name__ == "__main__":
    from dise_app.terminal.heap import keep_freed_memory

    keep_freed_memory()
    main()
