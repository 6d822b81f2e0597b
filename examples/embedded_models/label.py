"""Prints answers of an embedded model, labelled right or wrong, as JSON lines that `dise calibrate`
reads: to problems that it was not trained on, written greedily in the ways that the docs show; or,
with --given, texts that are given to it: greedy answers, drawn ones, and greedy ones of which one
digit is another. On standard error it tells how many are right among the surer and the less sure.
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
from string import digits
from typing import Any

from dise import LLM, SamplingParams, ScoringParams

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
            label = is_right(record["prompt"], answer.outputs[0].text)
            yield {**record, "label": label, "params": params.model_dump(mode="json")}


def labelled_texts(model: str, count: int) -> Iterator[dict[str, Any]]:
    """Yield the scores of given answers to `count` problems, with the labels."""
    llm, asked, random = LLM(model), prompts(model, count), Random(5)
    params = WAYS[model][-1].model_copy(update={"logprobs": None})
    drawn = params.model_copy(update={"temperature": 1.0, "seed": 3})
    greedy, free = ([a.outputs[0].text for a in llm.generate(asked, p)] for p in (params, drawn))
    for texts in (greedy, free, [with_another_digit(text, random) for text in greedy]):
        pairs = [pair for pair in zip(asked, texts, strict=True) if pair[1]]
        for answer in llm.score(*zip(*pairs, strict=True), ScoringParams(logprobs=None)):
            record = answer.to_dict()
            yield {**record, "label": is_right(record["prompt"], answer.outputs[0].text)}


def with_another_digit(text: str, random: Random) -> str:
    """Return the text with one of its digits replaced, if it has any."""
    places = [place for place, character in enumerate(text) if character in digits]
    if not places:
        return text
    place = random.choice(places)
    other = random.choice(digits.replace(text[place], ""))
    return text[:place] + other + text[place + 1 :]


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
    parser.add_argument("--given", action="store_true", help="label given texts")
    args = parser.parse_args()
    records = list((labelled_texts if args.given else labelled)(args.model, args.count))
    for record in records:
        print(json.dumps(record))
    print(*shares(records), sep="\n", file=sys.stderr)


if __name__ == "__main__":
    main()
