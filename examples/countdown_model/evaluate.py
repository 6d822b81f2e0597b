"""Measure the embedded model on problems that it was not trained on.

python examples/countdown_model/evaluate.py --problems countdown_cd3_test.jsonl

Each line of the file is {"input": "83,18,75", "output": "10"}. Without a file, 256 held-out
problems are drawn, seeded.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
from problems import Problem, held_out_problems, is_correct, parse_prompt

from dise_core import LLM, RequestOutput, SamplingParams, ScoringParams

SELECTORS = ("full", "response-text", "last-10")
NUM_ANSWERS = 5


def read_problems(path: Path | None) -> list[Problem]:
    """Return the problems of a file, or 256 held-out ones."""
    if path is None:
        return held_out_problems(Random(0), 256)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [parse_prompt(f"{row['input']} -> {row['output']}") for row in rows]


def roc_auc(scores: Sequence[float], is_right: Sequence[bool]) -> float:
    """Return the chance that a right answer scores above a wrong one; ties count half."""
    right = np.array([score for score, good in zip(scores, is_right, strict=True) if good])
    wrong = np.array([score for score, good in zip(scores, is_right, strict=True) if not good])
    above = (right[:, None] > wrong).mean() + (right[:, None] == wrong).mean() / 2
    return float(above)


def greedy(llm: LLM, problems: Sequence[Problem]) -> None:
    """Print the share solved at temperature 0, by schedule."""
    for tokens_per_step, block_length in ((2, 16), (1, 16), (1, 48)):
        params = SamplingParams(
            max_tokens=48, block_length=block_length, tokens_per_step=tokens_per_step
        )
        started = time.perf_counter()
        answers = llm.generate([problem.prompt for problem in problems], params)
        solved = sum(
            is_correct(answer.outputs[0].text, problem)
            for answer, problem in zip(answers, problems, strict=True)
        )
        print(
            f"greedy, {tokens_per_step} a step, blocks of {block_length}: {solved} of "
            f"{len(problems)} solved, "
            f"{solved / len(problems):.1%}, {time.perf_counter() - started:.1f} s",
            flush=True,
        )


def sampled(llm: LLM, problems: Sequence[Problem], temperature: float) -> None:
    """Print, for 5 answers a problem, the shares solved and the ROC-AUC of DiSE by selector, pooled
    and per question.
    """
    params = SamplingParams(
        max_tokens=48,
        block_length=16,
        tokens_per_step=2,
        temperature=temperature,
        n=NUM_ANSWERS,
        selector="full",
        seed=0,
    )
    answers = llm.generate([problem.prompt for problem in problems], params)
    is_right = [
        is_correct(output.text, problem)
        for answer, problem in zip(answers, problems, strict=True)
        for output in answer.outputs
    ]
    by_question = np.array(is_right).reshape(-1, NUM_ANSWERS)
    print(
        f"temperature {temperature}, {NUM_ANSWERS} answers: mean {by_question.mean():.1%}, "
        f"at least one right {by_question.any(axis=1).mean():.1%}"
    )
    for selector in SELECTORS:
        scores = rescored(llm, answers, selector)
        table = np.array(scores).reshape(-1, NUM_ANSWERS)
        mixed = [row for row in range(len(table)) if 0 < by_question[row].sum() < NUM_ANSWERS]
        per_question = np.mean(
            [roc_auc(table[row].tolist(), by_question[row].tolist()) for row in mixed]
        )
        best = by_question[np.arange(len(table)), table.argmax(axis=1)].mean()
        print(
            f"  DiSE over {selector:14s} ROC-AUC pooled {roc_auc(scores, is_right):.3f}, "
            f"per question {per_question:.3f} ({len(mixed)} questions), best of {NUM_ANSWERS} "
            f"{best:.1%}",
            flush=True,
        )


def rescored(llm: LLM, answers: Sequence[RequestOutput], selector: str) -> list[float]:
    """Return the score of every answer over another selector."""
    prompts = [answer.prompt_token_ids for answer in answers for _ in answer.outputs]
    responses = [output.token_ids for answer in answers for output in answer.outputs]
    scored = llm.score(prompts, responses, ScoringParams(selector=selector, block_length=16))
    return [answer.outputs[0].score.value for answer in scored]


def main() -> None:
    """Print the figures of the model card."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", type=Path)
    parser.add_argument("--model", default="countdown")
    parser.add_argument("--temperature", type=float, default=0.7)
    args = parser.parse_args()
    problems = read_problems(args.problems)
    llm = LLM(args.model)
    greedy(llm, problems)
    sampled(llm, problems, args.temperature)


if __name__ == "__main__":
    main()
