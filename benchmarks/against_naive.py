"""Scoring and decoding beside the way that published code does them, in one run.

python benchmarks/against_naive.py [--vocabulary 8192 126464] [--size 10 100] [--pairs 5] [--json FILE]

Naive: one text at a time, the head at every position, all logits in float32, log-softmax over them (scoring) or softmax in
float64 (decoding). Ours: dise_core.LLM. Both take turns, and must write the same tokens.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import random_llada
import torch

from dise_app.cli.memory import keep_freed_memory
from dise_core import LLM, SamplingParams, ScoringParams

SHAPES = {10: (384, 6), 100: (960, 10)}
"""Width and layers by millions of parameters without the vocabulary's."""

NUM_TEXTS, TEXT_LENGTHS = 64, (48, 128)
PROMPT_LENGTHS = (8, 16, 24, 32, 40, 48, 56, 64)
NEW_TOKENS, BLOCK, PER_STEP = 32, 32, 4

Job = tuple[str, Callable[[], Any], Callable[[], Any]]
"""A name, the naive way and ours; both return what must be equal."""


class Naive:
    """The published loops, on the very weights that ours runs."""

    def __init__(self, llm: LLM) -> None:
        reader: Any = llm.predictor._reader  # type: ignore[attr-defined]
        self._body, self._head = reader._forward._body, reader._head
        self._mask_id = llm.predictor.special.mask_id

    def logits(self, ids: list[int]) -> torch.Tensor:
        """Return all logits of a text, float32 [N, V]."""
        states = self._body(torch.tensor([ids]), use_cache=False).last_hidden_state
        logits: torch.Tensor = self._head(states)[0].float()
        return logits

    @torch.inference_mode()
    def score(self, ids: list[int]) -> float:
        """Return DiSE over the whole text."""
        logprobs = torch.log_softmax(self.logits(ids), dim=-1)
        return float(logprobs.gather(-1, torch.tensor(ids)[:, None]).mean())

    @torch.inference_mode()
    def decode(self, prompt: list[int]) -> list[int]:
        """Return the response, the surest tokens first, PER_STEP a step."""
        ids = torch.tensor([*prompt, *[self._mask_id] * NEW_TOKENS])
        for _ in range(NEW_TOKENS // PER_STEP):
            logits = self.logits(ids.tolist())
            logits[:, self._mask_id] = -torch.inf
            best = logits.argmax(-1)
            confidence = torch.softmax(logits.to(torch.float64), dim=-1).gather(-1, best[:, None])[:, 0]
            confidence[ids != self._mask_id] = -torch.inf
            chosen = confidence.topk(PER_STEP).indices
            ids[chosen] = best[chosen]
        return ids[len(prompt) :].tolist()


def jobs(llm: LLM, vocabulary: int) -> list[Job]:
    """Return what is timed."""
    random, naive = np.random.default_rng(0), Naive(llm)
    texts = [random.integers(0, vocabulary - 2, n).tolist() for n in random.integers(*TEXT_LENGTHS, NUM_TEXTS)]
    prompts = [random.integers(0, vocabulary - 2, n).tolist() for n in PROMPT_LENGTHS]
    scoring = ScoringParams(selector="full")
    decoding = SamplingParams(max_tokens=NEW_TOKENS, block_length=BLOCK, tokens_per_step=PER_STEP)
    return [
        (
            f"scoring {NUM_TEXTS} texts",
            lambda: np.round([naive.score(ids) for ids in texts], 3).tolist(),
            lambda: np.round(
                [answer.outputs[0].score.value for answer in llm.score([[]] * len(texts), texts, scoring)], 3
            ).tolist(),
        ),
        (
            f"decoding {len(prompts)} prompts",
            lambda: [naive.decode(prompt) for prompt in prompts],
            lambda: [list(answer.outputs[0].token_ids) for answer in llm.generate(prompts, decoding)],
        ),
    ]


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the time of a call and its result."""
    started = time.perf_counter()
    result = call()
    return time.perf_counter() - started, result


def compare(job: Job, pairs: int) -> dict[str, Any]:
    """Return the times of both ways, alternating, after one warm-up each."""
    name, naive, ours = job
    agreement = np.mean([a == b for a, b in zip(naive(), ours(), strict=True)])
    times = [(seconds(naive)[0], seconds(ours)[0]) for _ in range(pairs)]
    return {"job": name, "agreement": float(agreement), "times": times, "ratios": [a / b for a, b in times]}


def main() -> None:
    """Print a row for each size, vocabulary and job."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, nargs="+", default=[8192, 126464])
    parser.add_argument("--size", type=int, nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    keep_freed_memory()
    print("| million parameters | vocabulary | | naive, s | ours, s | ratio, median (range) | same |")
    print("| ---: | ---: | --- | ---: | ---: | --- | ---: |")
    rows = []
    for size in args.size:
        for vocabulary in args.vocabulary:
            with tempfile.TemporaryDirectory() as folder:
                llm = LLM(str(random_llada.write(Path(folder), vocabulary, *SHAPES[size], max_length=512)))
                for job in jobs(llm, vocabulary):
                    row = {"size": size, "vocabulary": vocabulary, **compare(job, args.pairs)}
                    rows.append(row)
                    naive, ours = (statistics.median(times) for times in zip(*row["times"], strict=True))
                    ratios = row["ratios"]
                    low, middle, high = min(ratios), statistics.median(ratios), max(ratios)
                    print(
                        f"| {size} | {vocabulary} | {row['job']} | {naive:.2f} | {ours:.2f} | {middle:.2f} ({low:.2f} to "
                        f"{high:.2f}) | {row['agreement']:.0%} |",
                        flush=True,
                    )
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
