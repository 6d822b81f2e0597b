"""Scoring and decoding beside the way that published code does them, in one run.

python benchmarks/against_naive.py [--vocabulary 8192 126464] [--size 10 100] [--pairs 5]
    [--data FILE]

Naive: one text at a time, the head at every position, all logits in float32, log-softmax over them
(scoring) or softmax in float64 (decoding; then what was written is scored). Ours: dise_core.LLM.
Both take turns, and must give the same. First the embedded model on Countdown problems, then random
models.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from command import Parser, head, ratios, row, settled, spread, take_turns, whole_reader
from random_checkpoints import SHAPES, dense, write

from dise_app.terminal.heap import keep_freed_memory
from dise_core import LLM, SamplingParams, ScoringParams
from dise_eval.datasets import questions

NUM_TEXTS, TEXT_LENGTHS = 64, (48, 128)
PROMPT_LENGTHS = (8, 16, 24, 32, 40, 48, 56, 64)

Answer = tuple[list[int], float]
"""A response's tokens, and DiSE over them to a thousandth of a nat."""

Job = tuple[str, Callable[[], list[Any]], Callable[[], list[Any]]]
"""A name, the naive way and ours; both return what must be equal."""


class Naive:
    """The published loops on transformers' model as it comes."""

    def __init__(self, model: str, mask_id: int | None) -> None:
        reader = whole_reader(model)
        self.body, self.head = reader._body._model, reader._head
        self._mask_id = mask_id

    def logits(self, ids: list[int]) -> torch.Tensor:
        """Return all logits of a text, float32 [N, V]."""
        states = self.body(torch.tensor([ids]), use_cache=False).last_hidden_state
        logits: torch.Tensor = self.head(states)[0].float()
        return logits

    @torch.inference_mode()
    def score(self, ids: list[int], num_positions: int) -> float:
        """Return DiSE over the last positions."""
        logprobs = torch.log_softmax(self.logits(ids), dim=-1)
        return float(logprobs.gather(-1, torch.tensor(ids)[:, None])[-num_positions:].mean())

    @torch.inference_mode()
    def answer(self, prompt: list[int], params: SamplingParams) -> Answer:
        """Return the response, written block by block, the surest tokens first, and its score."""
        ids = torch.tensor([*prompt, *[self._mask_id] * params.max_tokens])
        for start in range(len(prompt), len(ids), params.block_length):
            block = ids[start : start + params.block_length]
            while (num_masked := int((block == self._mask_id).sum())) > 0:
                logits = self.logits(ids.tolist())
                probabilities = torch.softmax(logits.to(torch.float64), dim=-1)
                logits[:, self._mask_id] = -torch.inf
                best = logits.argmax(-1)
                confidence = probabilities.gather(-1, best[:, None])[:, 0]
                confidence[ids != self._mask_id] = -torch.inf
                confidence[start + params.block_length :] = -torch.inf
                chosen = confidence.topk(min(params.tokens_per_step, num_masked)).indices
                ids[chosen] = best[chosen]
        text = ids.tolist()
        return text[len(prompt) :], round(self.score(text, params.max_tokens), 3)


def decoding(naive: Naive, llm: LLM, prompts: list[list[int]], params: SamplingParams) -> Job:
    """Return the two ways to answer prompts, each with DiSE over the response."""

    def ours() -> list[Answer]:
        outputs = [answer.outputs[0] for answer in llm.generate(prompts, params)]
        return [(list(output.token_ids), round(output.score.value, 3)) for output in outputs]

    return (
        f"decoding {len(prompts)} prompts",
        lambda: [naive.answer(prompt, params) for prompt in prompts],
        ours,
    )


def scoring(naive: Naive, llm: LLM, texts: list[list[int]]) -> Job:
    """Return the two ways to score texts, half prompt and half response, over last-10; equal to a
    thousandth of a nat.
    """
    prompts, responses = (
        [ids[: len(ids) // 2] for ids in texts],
        [ids[len(ids) // 2 :] for ids in texts],
    )

    params = ScoringParams(selector="last-10", logprobs=None)

    def ours() -> list[float]:
        return [answer.outputs[0].score.value for answer in llm.score(prompts, responses, params)]

    return (
        f"scoring {len(texts)} texts",
        lambda: np.round([naive.score(ids, 10) for ids in texts], 3).tolist(),
        lambda: np.round(ours(), 3).tolist(),
    )


def embedded(path: Path | None, num_problems: int) -> tuple[Job, Job]:
    """Return what is timed on the embedded model, and what must only agree: all the problems."""
    llm = settled(LLM("countdown"))
    naive = Naive("countdown", llm.predictor.info.special.mask_id)
    tokenizer = llm.predictor.tokenizer
    prompts = [
        tokenizer.encode_chat([{"role": "user", "content": item.prompt}]).tolist()
        for item in questions.load("countdown-short", path, num_problems).items
    ]
    params = SamplingParams(max_tokens=48, block_length=16, selector="response", logprobs=None)
    return decoding(naive, llm, prompts[:64], params), decoding(naive, llm, prompts, params)


def random_jobs(folder: str, vocabulary: int, size: int) -> list[Job]:
    """Return what is timed on a random model."""
    write(Path(folder), dense(vocabulary, *SHAPES[size]))
    naive, llm = Naive(folder, vocabulary - 1), settled(LLM(folder))
    random = np.random.default_rng(0)
    texts = [
        random.integers(0, vocabulary - 2, n).tolist()
        for n in random.integers(*TEXT_LENGTHS, NUM_TEXTS)
    ]
    prompts = [random.integers(0, vocabulary - 2, n).tolist() for n in PROMPT_LENGTHS]
    params = SamplingParams(max_tokens=32, tokens_per_step=4, selector="response", logprobs=None)
    return [scoring(naive, llm, texts), decoding(naive, llm, prompts, params)]


def compare(job: Job, pairs: int, model: str, vocabulary: int) -> None:
    """Time both ways and print a row of the table."""
    name, naive, ours = job
    times, results = take_turns({"naive": naive, "ours": ours}, pairs)
    same = np.mean([a == b for a, b in zip(results["naive"], results["ours"], strict=True)])
    medians = [f"{statistics.median(seconds):.2f}" for seconds in times.values()]
    gains = spread(ratios(times, "naive", "ours"))
    row(model, vocabulary, name, *medians, gains, f"{same:.0%}")


def main() -> None:
    """Print a row for each model and job."""
    parser = Parser(__doc__)
    parser.add_argument("--vocabulary", type=int, nargs="*", default=[8192, 126464])
    parser.add_argument("--size", type=int, nargs="*", choices=SHAPES, default=[10, 100])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--data", type=Path, help="Countdown problems; drawn if not given")
    parser.add_argument("--problems", type=int, default=256)
    args = parser.options(vocabulary=[512], size=[1], pairs=1, problems=2)
    keep_freed_memory()
    head("model", "vocabulary", "", "naive, s", "ours, s", "ratio, median (range)", "same")
    timed, whole = embedded(args.data, args.problems)
    compare(timed, args.pairs, "countdown", 32)
    compare(whole, 1, "countdown", 32)
    for size in args.size:
        for vocabulary in args.vocabulary:
            with tempfile.TemporaryDirectory() as folder:
                for job in random_jobs(folder, vocabulary, size):
                    compare(job, args.pairs, f"random, {size} M", vocabulary)


if __name__ == "__main__":
    main()
