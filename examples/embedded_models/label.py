"""Prints answers of an embedded model, labelled right or wrong, as JSON lines that `dise calibrate`
reads: to problems that it was not trained on, written greedily in the ways that the docs show. On
standard error it tells how many are right among the surer and the less sure.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from dise import LLM, SamplingParams

from .countdown.problems import held_out_problems, is_correct, parse_prompt

ANEW = Path(__file__).with_name("words") / "anew.txt"
"""Word problems in nobody's pattern, each with its result."""

COUNTDOWN = [
    SamplingParams(),
    SamplingParams(max_tokens=48, block_length=16),
    SamplingParams(max_tokens=48, block_length=16, tokens_per_step=1),
]
BLOCKS = [SamplingParams(), SamplingParams(max_tokens=48, tokens_per_step=1)]
WORDS = [SamplingParams(), SamplingParams(max_tokens=24, block_length=24, tokens_per_step=1)]

WAYS = {"countdown": COUNTDOWN, "countdown-blocks": BLOCKS, "word-problems": WORDS}


def prompts(model: str, count: int) -> list[str]:
    """Return `count` problems, or as many as there are."""
    if model == "word-problems":
        return [line.rpartition(" = ")[0] for line in ANEW.read_text().splitlines()][:count]
    return [problem.prompt for problem in held_out_problems(Random(1), count)]


def is_right(prompt: str, answer: str) -> bool:
    """Return whether the answer solves the problem."""
    if "->" in prompt:
        return is_correct(answer, parse_prompt(prompt))
    results = dict(line.rsplit(" = ", 1) for line in ANEW.read_text().splitlines())
    return re.findall(r"= (\d+)", answer)[:1] == [results[prompt]]


def labelled(model: str, count: int) -> Iterator[dict[str, Any]]:
    """Yield the answers to `count` problems, with the labels, a way of writing after the other."""
    llm, asked = LLM(model), prompts(model, count)
    for params in WAYS[model]:
        for answer in llm.generate(asked, params.model_copy(update={"logprobs": None})):
            record = answer.to_dict()
            yield {**record, "label": is_right(record["prompt"], answer.outputs[0].text)}


def shares(records: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield a line for each range of a token's probability: the answers in it, how many are right,
    and what the model's own calibration tells of them.
    """
    for low, high in ((0.95, 1.01), (0.8, 0.95), (0.0, 0.8)):
        inside = [
            (record["label"], output["probability"])
            for record in records
            for output in record["outputs"]
            if low <= math.exp(output["score"]["value"]) < high
        ]
        right = sum(label for label, _ in inside) / max(len(inside), 1)
        told = [probability for _, probability in inside if probability is not None]
        mean = f", told {sum(told) / len(told):.1%}" if told else ""
        yield f"from {low:.0%} a token: {len(inside)} answers, {right:.1%} right{mean}"


def main() -> None:
    """Print the lines of one model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=WAYS)
    parser.add_argument("--count", type=int, default=400)
    args = parser.parse_args()
    records = list(labelled(args.model, args.count))
    for record in records:
        print(json.dumps(record))
    print(*shares(records), sep="\n", file=sys.stderr)


if __name__ == "__main__":
    main()
