"""Answers under a regular expression beside free ones, on the embedded models: how many are valid,
how many are solved, and how well a field's score tells right fields from wrong ones.

python benchmarks/structured.py [--problems 500] [--data countdown_cd3_test.jsonl]

Word problems are drawn from sentence patterns that the model was not trained on; Countdown's from
--data, or drawn too. A field's score is the sum of its tokens' log-probabilities, among those that
the expression allows in their places or, plain, among all; a number is right if it is the
reference's, where numbers that are added or multiplied may change places, a thing that is counted
if the problem names it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from command import Parser, head, row

from dise_core import LLM, CompletionOutput, SamplingParams, ScoringParams
from dise_eval.datasets import questions
from dise_eval.datasets.dataset import Problem
from dise_eval.datasets.questions import ProblemSet
from dise_eval.datasets.worded import SVAMP_SHORT
from dise_eval.statistics import resampling
from dise_eval.statistics.metrics import auroc

WORDS = "([0-9]+) ([-+*/]) ([0-9]+) = ([0-9]+) ([a-z]+)"
EQUATION = "[0-9]+[-+*/][0-9]+=-?[0-9]+"
COUNTDOWN = f"{EQUATION},-?{EQUATION}<answer>[0-9]+[-+*/][0-9]+[-+*/][0-9]+</answer>"

EXAMPLES = Path(__file__).parents[1] / "examples"

FIELDS = {"first number": 1, "second number": 3, "result": 4, "thing": 5}
"""Groups of WORDS."""


def word_problems(count: int) -> ProblemSet:
    """Return problems of patterns that the model was not trained on."""
    command = [sys.executable, "-m", "embedded_models.words.problems", "--count", str(count)]
    drawn = subprocess.run(command, cwd=EXAMPLES, capture_output=True, text=True, check=True)
    rows = enumerate(map(json.loads, drawn.stdout.splitlines()))
    items = tuple(SVAMP_SHORT.problem(line, number) for number, line in rows)
    return ProblemSet(SVAMP_SHORT, "drawn", items)


def are_right(problem: Problem, match: re.Match[str]) -> dict[str, bool]:
    """Return which fields of an answer are the reference's."""
    one, sign, other = re.findall(r"[\d.]+|[-+*/]", str(problem.row["Equation"]))
    truth, given = [float(one), float(other)], [float(match[1]), float(match[3])]
    if sign in "+*" and given != truth and given[0] in truth[1:]:
        truth.reverse()
    numbers = dict(zip(list(FIELDS)[:2], np.equal(given, truth).tolist(), strict=True))
    is_named = match[5] in re.findall("[a-z]+", problem.prompt.lower())
    return {**numbers, "result": float(match[4]) == problem.truth, "thing": is_named}


def field_scores(output: CompletionOutput, match: re.Match[str]) -> dict[str, float]:
    """Return the sum of the log-probabilities of the tokens that hold part of each field."""
    stops = np.cumsum([len(token.text) for token in output.tokens])
    starts, logprobs = np.append(0, stops[:-1]), [token.logprob for token in output.tokens]
    return {
        name: float(np.sum([
            logprob for logprob, start, stop in zip(logprobs, starts, stops, strict=True)
            if logprob is not None and start < match.end(group) and stop > match.start(group)
        ]))
        for name, group in FIELDS.items()
    }  # fmt: skip


def compare(
    name: str, asked: ProblemSet, expression: str, settings: SamplingParams
) -> dict[int, list[CompletionOutput]]:
    """Print the rows of free and of bound answers, and return the bound ones, at 1, 2 and 4 tokens
    a step.
    """
    llm, bound = LLM(name), dict[int, list[CompletionOutput]]()
    prompts = [item.prompt for item in asked.items]
    for rate in (1, 2, 4):
        free = settings.model_copy(update={"tokens_per_step": rate})
        constraint = {"constraint": "regex", "constraint_settings": {"regex": expression}}
        solved: list[np.ndarray] = []
        for params in (free, free.model_copy(update=constraint)):
            outputs = [answer.outputs[0] for answer in llm.generate(prompts, params)]
            valid = np.mean([bool(re.fullmatch(expression, output.text)) for output in outputs])
            pairs = zip(asked.items, outputs, strict=True)
            verdicts = [asked.graded(item, output.text, "robust") for item, output in pairs]
            solved.append(np.array([verdict["is_correct"] for verdict in verdicts], float))
            way = "bound" if params.constraint else "free"
            gap = resampling.mean(solved[-1] - solved[0], True)
            beyond = f"{gap.value:+.1%} [{gap.low:+.1%}, {gap.high:+.1%}]"
            cells = f"{valid:.1%}", f"{solved[-1].mean():.1%}", beyond if params.constraint else ""
            row(f"{name}, {way}", rate, *cells)
        bound[rate] = outputs
    return bound


def plain(asked: ProblemSet, outputs: list[CompletionOutput]) -> list[CompletionOutput]:
    """Return the answers with what the model says of them where it knows of no constraint."""
    llm, params = LLM("word-problems"), ScoringParams(logprobs=0)
    prompts = [item.prompt for item in asked.items]
    answers = llm.score(prompts, [list(output.token_ids) for output in outputs], params)
    pairs = zip(outputs, answers, strict=True)
    return [replace(output, tokens=answer.outputs[0].tokens) for output, answer in pairs]


def tell(way: str, asked: ProblemSet, outputs: list[CompletionOutput]) -> None:
    """Print a row of how well the scores of each field tell right ones from wrong ones."""
    scores, rights = [], []
    for problem, output in zip(asked.items, outputs, strict=True):
        match = re.fullmatch(WORDS, output.text)
        assert match is not None
        scores.append([*field_scores(output, match).values()])
        rights.append([*are_right(problem, match).values()])
    values, is_right = np.array(scores), np.array(rights)
    of_all = resampling.resampled("auroc_pooled", values, is_right).estimate
    cells = [
        f"{auroc(values[:, index], is_right[:, index]):.3f} ({is_right[:, index].mean():.1%})"
        for index in range(len(FIELDS))
    ]
    row(way, *cells, f"{of_all.value:.3f} [{of_all.low:.3f}, {of_all.high:.3f}]")


def main() -> None:
    """Print the tables."""
    parser = Parser(__doc__)
    parser.add_argument("--problems", type=int, default=500)
    parser.add_argument("--data", type=Path, help="Countdown's problems; drawn if not given")
    args = parser.options(problems=4)
    settings = SamplingParams(max_tokens=24, block_length=24, logprobs=0, seed=0)
    head("answers", "tokens a step", "valid", "solved", "beyond free ones")
    asked = word_problems(args.problems)
    bound = compare("word-problems", asked, WORDS, settings)
    puzzles = questions.load("countdown-short", args.data, args.problems, 0)
    longer = settings.model_copy(update={"max_tokens": 48, "block_length": 16})
    compare("countdown", puzzles, COUNTDOWN, longer)
    print()
    head("ROC-AUC of field scores (right)", *FIELDS, "all")
    for rate, outputs in bound.items():
        tell(f"{rate} a step", asked, outputs)
        tell(f"{rate} a step, plain", asked, plain(asked, outputs))


if __name__ == "__main__":
    main()
