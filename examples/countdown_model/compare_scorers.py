"""Compare scorers on the same answers of the embedded model: what they cost, and whether they know
right from wrong.

python examples/countdown_model/compare_scorers.py --problems countdown_cd3_test.jsonl
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from evaluate import read_problems, roc_auc
from problems import Problem, is_correct

from dise_core import LLM, SamplingParams, TokenSequence
from dise_core.cost import count_nfe

NUM_ANSWERS = 5

SCORERS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("dise", {}, "full"),
    ("dise", {}, "response-text"),
    ("dise", {}, "last-10"),
    ("interleaved", {"k": 2}, "response-text"),
    ("interleaved", {"k": 4}, "response-text"),
    ("interleaved", {"k": 8}, "response-text"),
    ("mc", {"num_samples": 1}, "response"),
    ("mc", {"num_samples": 32}, "response"),
    ("mc", {"num_samples": 1}, "response-text"),
    ("mc", {"num_samples": 32}, "response-text"),
    ("mc-llada", {"num_samples": 32}, "response-text"),
    ("mc-dream", {"num_samples": 32}, "response-text"),
)


def answers(
    llm: LLM, problems: Sequence[Problem], temperature: float
) -> tuple[list[TokenSequence], np.ndarray]:
    """Return five answers to each problem as texts, and which are right, bool [problems, 5]."""
    params = SamplingParams(
        max_tokens=48, block_length=16, temperature=temperature, n=NUM_ANSWERS, seed=0
    )
    texts, is_right = [], []
    for answer, problem in zip(
        llm.generate([problem.prompt for problem in problems], params), problems, strict=True
    ):
        for output in sorted(answer.outputs, key=lambda output: output.index):
            texts.append(
                TokenSequence.of(
                    answer.prompt_token_ids, output.token_ids, llm.predictor.info.special, 16
                )
            )
            is_right.append(is_correct(output.text, problem))
    return texts, np.array(is_right).reshape(-1, NUM_ANSWERS)


def compare(llm: LLM, texts: Sequence[TokenSequence], is_right: np.ndarray) -> None:
    """Print a row of the table for each scorer."""
    mixed = is_right.any(axis=1) & ~is_right.all(axis=1)
    print(
        f"{len(is_right)} problems, {is_right.mean():.1%} of the answers right, {mixed.sum()} "
        "problems with both kinds"
    )
    print(
        f"best of {NUM_ANSWERS} at best {is_right.any(axis=1).mean():.1%}, by chance "
        f"{is_right.mean():.1%}\n"
    )
    print(
        "| scorer | over | NFE | ms per answer | ROC-AUC pooled | per question | best of "
        f"{NUM_ANSWERS} |"
    )
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for name, settings, selector_name in SCORERS:
        scorer, selector = llm.catalog.scorer(name, settings), llm.catalog.selector(selector_name)
        started = time.perf_counter()
        outcomes = list(llm.engine.run(count_nfe(scorer.score(text, selector)) for text in texts))
        seconds = time.perf_counter() - started
        results = [
            outcome.unwrap() for outcome in sorted(outcomes, key=lambda outcome: outcome.index)
        ]
        scores = np.array([score.value for score, _ in results]).reshape(is_right.shape)
        pooled = roc_auc(scores.ravel().tolist(), is_right.ravel().tolist())
        each = [
            roc_auc(scores[row].tolist(), is_right[row].tolist()) for row in np.flatnonzero(mixed)
        ]
        best = is_right[np.arange(len(scores)), scores.argmax(axis=1)].mean()
        label = " ".join([name, *(f"{key}={value}" for key, value in settings.items())])
        nfe = np.mean([nfe for _, nfe in results])
        print(
            f"| {label} | {selector_name} | {nfe:.1f} | {seconds / len(texts) * 1e3:.2f} | "
            f"{pooled:.3f} | "
            f"{np.mean(each):.3f} | {best:.1%} |",
            flush=True,
        )


def main() -> None:
    """Write the answers and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", type=Path)
    parser.add_argument("--model", default="countdown")
    parser.add_argument("--temperature", type=float, default=0.7)
    args = parser.parse_args()
    llm = LLM(args.model)
    texts, is_right = answers(llm, read_problems(args.problems), args.temperature)
    compare(llm, texts, is_right)


if __name__ == "__main__":
    main()
