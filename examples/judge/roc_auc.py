"""How well does an auto-regressive judge's perplexity tell a diffusion model's right answers from
its wrong ones?

python examples/judge/roc_auc.py --answers llada_8b_instruct_countdown.jsonl --judge
SmolLM2-135M-Instruct.Q4_1.gguf

Each line of the file holds "question", "response", "gen_length" and "ground_truth": [[numbers],
target]. The judge reads the question as the user's message and the response, without its special
tokens, as the answer.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np

from dise_app.cli.memory import keep_freed_memory
from dise_app.cli.progress import progress_bar
from dise_core import LLM, ScoringParams

sys.path.insert(0, str(Path(__file__).parents[1] / "countdown_model"))
from evaluate import roc_auc
from problems import value_of


def boxed(response: str) -> str | None:
    """Return what stands in the last \\boxed{...}, braces inside it balanced; None without one."""
    start = response.rfind("\\boxed{")
    depth = 0
    for place in range(start, len(response)) if start >= 0 else ():
        depth += {"{": 1, "}": -1}.get(response[place], 0)
        if depth == 0 and response[place] == "}":
            return response[start + len("\\boxed{") : place]
    return None


def is_correct(response: str, numbers: Sequence[int], target: int) -> bool:
    """Return whether the boxed expression uses each number once and makes the target."""
    expression = boxed(response)
    if expression is None:
        return False
    for latex, plain in (("\\div", "/"), ("\\times", "*"), ("\\cdot", "*")):
        expression = expression.replace(latex, plain)
    expression = expression.partition("=")[0]
    if not re.fullmatch(r"[\d+\-*/() ]{1,200}", expression):
        return False
    if sorted(map(int, re.findall(r"\d+", expression))) != sorted(numbers):
        return False
    try:
        return value_of(ast.parse(expression.strip(), mode="eval").body) == Fraction(target)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return False


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--answers", type=Path, required=True)
    parser.add_argument("--judge", required=True)
    args = parser.parse_args()
    keep_freed_memory()
    rows = [json.loads(line) for line in args.answers.read_text().splitlines()]
    judge = LLM(args.judge)
    responses = [re.sub(r"<\|[a-z_]+\|>", "", row["response"]) for row in rows]
    questions = [row["question"] for row in rows]
    params = ScoringParams(scorer="ar-perplexity")
    plans = [judge.planner.score(*pair, params) for pair in zip(questions, responses, strict=True)]
    scores = {}
    with progress_bar(len(plans)) as advance:
        for outcome in judge.run(plans):
            scores[outcome.index] = outcome.unwrap().outputs[0].score
            advance(1)
    values = np.array([scores[index].value for index in range(len(rows))])
    totals = np.array([scores[index].log_likelihood for index in range(len(rows))])
    is_right = np.array([is_correct(row["response"], *row["ground_truth"]) for row in rows])
    lengths = np.array([row["gen_length"] for row in rows])
    print(
        "| tokens | answers | right | ROC-AUC of the mean log p | of the sum | median perplexity |"
    )
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    for length in sorted(set(lengths.tolist())):
        here = lengths == length
        mean, total = (roc_auc(v[here].tolist(), is_right[here].tolist()) for v in (values, totals))
        perplexity = np.median(np.exp(-values[here]))
        print(
            f"| {length} | {here.sum()} | {is_right[here].sum()} | {mean:.3f} | {total:.3f} | "
            f"{perplexity:.2f} |"
        )


if __name__ == "__main__":
    main()
