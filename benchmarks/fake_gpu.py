"""What a GPU would be asked to do, without one: LLaDA-8B, Dream-7B, SDAR-8B and LLaDA2.0-mini at
full size on torch's meta tensors, and how many shapes of attention a stream of requests makes.

make fake-gpu, or PYTHONPATH=. python benchmarks/fake_gpu.py --models LLaDA-8B --requests 128

A row is the pass of a case with the median number of kernels; peak and faults are those of all its
passes. Exits with 1 where an operation mixes devices or waits for the GPU inside a pass, where our
layers make float32 of 16-bit states, and where a pass needs more memory than is planned for it.
"Planned" are shapes of attention for which cuDNN is asked, which plans each for 20 to 40 ms.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from command import Parser, head, row

from dise_core import LLM, Read, TokenLogProbs
from tests import full_size
from tests.pretended_gpu import Pass

KIB, GIB = 2**10, 2**30
HEADS = ("model", "what is read", "texts", "tokens", "kernels", "copies in, KiB", "copies out, KiB",
         "cached keys copied, KiB", "peak, GiB", "planned, GiB", "faults")  # fmt: skip


def cases(llm: LLM, texts: int, tokens: int) -> Iterator[str]:
    """Run the passes of each case in turn, and yield what it is called."""
    draw = np.random.default_rng(0)
    kinds = {"ends": (-32, 1), "ends, lengths differ": (-32, tokens // 3), "every token": (1, 1)}
    for name, (first, spread) in kinds.items():
        reads = []
        for length in tokens - draw.integers(0, spread, texts):
            ids, positions = draw.integers(0, full_size.WORDS, length), np.arange(length)[first:]
            reads.append(Read(ids, positions, TokenLogProbs(ids[positions])))
        llm.predictor.read(reads)
        yield name
    is_free = llm.predictor.info.block_length is None
    for cache in ("exact", "dual") if is_free else ("exact",):
        full_size.generate(llm, [tokens - 64] * (texts // 4), cache, 16)
        yield f"candidates, {cache}" if is_free else "candidates of blocks"


def show(model: str, name: str, passes: Sequence[Pass], planned: int) -> bool:
    """Print a case's row, and return whether it is as it should be."""
    usual = sorted(passes, key=lambda each: each.kernels)[len(passes) // 2]
    copies = [f"{count}, {size / KIB:.0f}" for count, size in usual.copies.values()]
    faults = Counter(fault for each in passes for fault in each.faults)
    peak = max(each.peak for each in passes)
    row(model, name, usual.reads, usual.tokens, usual.kernels, *copies,
        f"{usual.cached / KIB:.0f}", f"{peak / GIB:.2f}", f"{planned / GIB:.2f}",
        faults.total())  # fmt: skip
    for fault, count in faults.items():
        print(f"{model}, {name}: {count} x {fault}", file=sys.stderr)
    return not faults and peak <= planned


def stream(folder: Path, model: str, requests: int) -> None:
    """Print how many new shapes of attention the reads of a stream make, after the first 100."""
    lengths = np.random.default_rng(0).integers(40, 240, requests)
    ways = [(1, "exact"), (8, "exact"), (8, "dual")]
    for at_once, cache in ways[: 3 if model == "LLaDA-8B" else 2]:
        with full_size.loaded(folder, max_num_seqs=at_once) as (llm, gpu, _):
            full_size.generate(
                llm, lengths[: -(-requests * (at_once + 1) // 9)].tolist(), cache, 64
            )
        late = gpu.passes[100:] or gpu.passes
        means = (np.mean([getattr(each, part) for each in late]) for part in ("shapes", "plans"))
        row(model, cache, at_once, len(gpu.passes), *(f"{mean:.3f}" for mean in means))


def main() -> None:
    """Print the tables."""
    parser = Parser(__doc__)
    parser.add_argument("--models", nargs="+", choices=full_size.MODELS, default=full_size.MODELS)
    parser.add_argument("--requests", type=int, default=40, help="of a stream")
    args = parser.options(models=["LLaDA-8B"], requests=4)
    is_right = True
    with tempfile.TemporaryDirectory() as temporary:
        head(*HEADS)
        for model in args.models:
            folder = full_size.write(
                Path(temporary) / model, model, layers=2 if args.tiny else None
            )
            with full_size.loaded(folder) as (llm, gpu, planned):
                for name in cases(llm, texts=32, tokens=512):
                    is_right &= show(model, name, gpu.passes, planned)
                    gpu.passes.clear()
        print()
        head("model", "cache", "at once", "reads", "new shapes a read", "planned")
        for model in [*args.models][::2]:
            folder = full_size.write(Path(temporary) / f"{model}-2", model, layers=2)
            stream(folder, model, args.requests)
    if not is_right:
        sys.exit(1)


if __name__ == "__main__":
    main()
