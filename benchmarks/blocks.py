"""Block diffusion beside the naive loop, which reads the whole text again in each step; and the
time of each token of a long answer, attention's part of it apart, and the memory.

python benchmarks/blocks.py [--prompt 512] [--tokens 64] [--prompts 1 8] [--rounds 3] [--long 2048]

A random Qwen3 of 100 million parameters with blocks of 32, float32, two tokens a step, greedy. The
naive loop runs transformers' own model, one prompt after the other, and gives no score; ours gives
DiSE of the whole answer too. Prints both times, their ratio, and how many tokens are the same.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import random_qwen3
import torch
from command import Parser, head, row
from random_qwen3 import BLOCK
from settled import settled
from side_by_side import ratios, spread, take_turns
from stopwatch import Stopwatch
from transformers import Qwen3Config, Qwen3ForCausalLM

from dise_adapters.local.decoder import layer
from dise_app.terminal.memory import keep_freed_memory
from dise_core import LLM, SamplingParams

VOCABULARY, WIDTH, MAX_LENGTH = 8192, 768, 4096
PER_STEP = 2


@torch.inference_mode()
def naive(model: Any, prompt: Sequence[int], num_tokens: int, mask_id: int) -> list[int]:
    """Return the response as the published loops write it."""
    text = torch.tensor([*prompt, *[mask_id] * num_tokens])
    blocks = torch.arange(len(text)) // BLOCK
    for block in range(len(prompt) // BLOCK, int(blocks[-1]) + 1):
        stop = min((block + 1) * BLOCK, len(text))
        sees = blocks[:stop] <= blocks[:stop, None]
        while (masked := torch.nonzero(text[:stop] == mask_id).flatten()).numel():
            logits = model(text[None, :stop], attention_mask=sees[None, None]).logits[0, masked]
            probabilities = torch.softmax(logits.float(), -1)
            confidence, token = torch.where(
                torch.arange(VOCABULARY) == mask_id, -1.0, probabilities
            ).max(-1)
            surest = torch.argsort(-confidence, stable=True)[:PER_STEP]
            text[masked[surest]] = token[surest]
    found: list[int] = text[len(prompt) :].tolist()
    return found


def whole_model(folder: Path) -> Any:
    """Return transformers' model of the checkpoint, with full attention where no mask is given."""
    config = Qwen3Config.from_json_file(folder / "config.json")
    config.is_causal = False
    return Qwen3ForCausalLM.from_pretrained(
        folder, config=config, dtype=torch.float32, trust_remote_code=False
    ).eval()


def beside_naive(llm: LLM, model: Any, args: argparse.Namespace) -> None:
    """Print the table of both ways."""
    numbers = np.random.default_rng(0)
    params = SamplingParams(max_tokens=args.tokens, tokens_per_step=PER_STEP, length="fixed")
    mask_id = llm.predictor.info.special.mask_id
    head("prompts", "naive, s", "ours, s", "naive / ours", "same tokens")
    for count in args.prompts:
        prompts = numbers.integers(0, VOCABULARY - 2, (count, args.prompt)).tolist()
        ways = {
            "naive": lambda prompts=prompts: [
                naive(model, each, args.tokens, mask_id) for each in prompts
            ],
            "ours": lambda prompts=prompts: llm.generate(prompts, params),
        }
        times, results = take_turns(ways, args.rounds)
        ours = [list(answer.outputs[0].token_ids) for answer in results["ours"]]
        same = np.mean(np.array(ours) == np.array(results["naive"]))
        one, other = (statistics.median(times[way]) for way in ways)
        ratio = spread(ratios(times, "naive", "ours"))
        row(count, f"{one:.2f}", f"{other:.2f}", ratio, f"{same:.1%}")


def long_answer(llm: LLM, num_tokens: int) -> None:
    """Print the time of each token, attention's share of it, and the memory, for groups of
    blocks.
    """
    params = SamplingParams(max_tokens=num_tokens, tokens_per_step=PER_STEP, length="fixed")
    llm.generate([[1, 2, 3]], params.model_copy(update={"max_tokens": 4 * BLOCK}))
    attending = Stopwatch(layer.scaled_dot_product_attention)
    layer.scaled_dot_product_attention = attending
    process, ends, sizes = psutil.Process(), [(time.perf_counter(), 0.0)], [0]
    for update in llm.stream([1, 2, 3], params):
        if getattr(update, "scored", ()):  # a block is finished
            ends.append((time.perf_counter(), attending.seconds))
            sizes.append(process.memory_info().rss)
    print()
    head("blocks", "ms a token, median", "of it attention", "all else", "memory, MiB")
    edges = [edge for edge in (0, 4, *range(16, len(ends), 16)) if edge < len(ends) - 1]
    for first, last in zip(edges, [*edges[1:], len(ends) - 1], strict=True):
        taken = 1000 * np.diff(ends[first : last + 1], axis=0) / BLOCK
        token, attended = np.median(taken, axis=0)
        rest = np.median(taken[:, 0] - taken[:, 1])
        times = [f"{time:.1f}" for time in (token, attended, rest)]
        row(f"{first + 1} to {last}", *times, f"{sizes[last] / 2**20:,.0f}")


def main() -> None:
    """Run both parts."""
    parser = Parser(__doc__)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompts", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--long", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=12)
    args = parser.options(prompt=32, tokens=32, prompts=[1], rounds=1, long=64, layers=1)
    if args.prompt % BLOCK or args.tokens % BLOCK:  # the naive loop completes no block
        parser.error(f"--prompt and --tokens must be multiples of {BLOCK}")
    keep_freed_memory()
    with tempfile.TemporaryDirectory() as folder:
        path = random_qwen3.write(Path(folder), VOCABULARY, WIDTH, args.layers, MAX_LENGTH)
        llm = settled(LLM(str(path), dtype="float32"))
        beside_naive(llm, whole_model(path), args)
        if args.long:
            long_answer(llm, args.long)


if __name__ == "__main__":
    main()
