"""Does the score by which dise-flexible compares its texts depend on their length?

python benchmarks/length_bias.py [--data countdown_cd3_test.jsonl] [--problems 96]
python benchmarks/length_bias.py --model word-problems --dataset svamp-short --data svamp.json

The score s of each text that Algorithm 1 compares is regressed on the logarithm of its length L, by
least squares with an intercept for each problem: s = a + k ln L + c for the first text, which alone
is without end tokens. A problem's right length L* is that of the shortest right text that was
written for it; texts within --margin tokens of it are left out, as are problems without one. Bias:
|k| ln(Lmax / Lmin), the mean over runs of what k makes of the lengths that one run compares; s.d.:
of s within a run. In brackets 95 % intervals, by bootstrap over problems.

The second table replays the comparisons with patience 4, as each text is written from the one
before whatever the comparisons say: by s, by s - k ln L with the first row's k, and by s where a
text must be better by a margin. It shows the lengths that are chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from command import Parser, head, row

from dise_core import LLM, RequestOutput, SamplingParams
from dise_core.arrays import Floats, Mask
from dise_eval.datasets.questions import ProblemSet, load
from dise_eval.statistics.resampling import rows_of


class Texts(NamedTuple):
    """The texts that were compared, [I] each: the problem and the run that they belong to."""

    problem: Floats
    run: Floats
    length: Floats
    score: Floats
    is_first: Floats
    excess: Floats


def right_lengths(
    llm: LLM, problems: ProblemSet, runs: Sequence[Sequence[RequestOutput]]
) -> dict[int, int]:
    """Return the length without end tokens of the shortest right answer to each problem, by the
    problem's number; none for a problem that no run solves.
    """
    lengths: dict[int, int] = {}
    for answers in runs:
        for number, (item, answer) in enumerate(zip(problems.items, answers, strict=True)):
            [output] = answer.outputs
            if problems.graded(item, output.text, "robust")["is_correct"]:
                is_end = llm.predictor.info.special.is_end(np.array(output.token_ids))
                length = int((~is_end).sum())
                lengths[number] = min(length, lengths.get(number, length))
    return lengths


def compared(runs: Sequence[Sequence[RequestOutput]], lengths: dict[int, int]) -> Texts:
    """Return the texts with a score of all runs over the problems that have a right length."""
    rows = [
        (number, base * len(answers) + number, step.num_tokens, step.score, step.iteration == 1,
         step.num_tokens - lengths[number])
        for base, answers in enumerate(runs)
        for number, answer in enumerate(answers)
        for step in answer.outputs[0].trace
        if number in lengths and np.isfinite(step.score)
    ]  # fmt: skip
    return Texts(*np.array(rows, np.float64).T)


def within(values: Floats, groups: Floats) -> Floats:
    """Return the values [I, ...] less the mean of their group."""
    _, group, counts = np.unique(groups, return_inverse=True, return_counts=True)
    sums = np.zeros((len(counts), *values.shape[1:]))
    np.add.at(sums, group, values)
    return values - (sums.T / counts).T[group]


def fitted(texts: Texts) -> Floats:
    """Return k and c, float64 [2, 1 + 1000]: of all texts, then of each resample of problems."""
    values = np.stack([np.log(texts.length), texts.is_first, texts.score], axis=1)
    values = within(values, texts.problem)
    numbers = np.unique(texts.problem)
    moments = np.array([part.T @ part for n in numbers if len(part := values[texts.problem == n])])
    totals = [moments.sum(0), *(moments[drawn].sum(0) for drawn in rows_of(len(numbers)))]
    return np.array([np.linalg.lstsq(total[:2, :2], total[:2, 2])[0] for total in totals]).T


def chosen(texts: Texts, values: Floats, margin: float = 0.0) -> list[int]:
    """Return the number of the text that each run chooses by these values [I], with patience 4."""
    numbers = []
    for run in np.unique(texts.run):
        first, *later = np.flatnonzero(texts.run == run).tolist()
        best, num_failures = first, 0
        for number in later:
            is_better = num_failures < 4 and values[number] > values[best] + margin
            best, num_failures = (number, 0) if is_better else (best, num_failures + 1)
        numbers.append(best)
    return numbers


def show(name: str, texts: Texts, is_row: Mask) -> None:
    """Print the row of some of the texts."""
    texts = Texts(*(column[is_row] for column in texts))
    estimates = fitted(texts)
    k, step = (
        f"{values[0]:+.4f} [{np.quantile(values[1:], 0.025):+.4f}, "
        f"{np.quantile(values[1:], 0.975):+.4f}]"
        for values in estimates
    )
    logs = [np.log(texts.length[texts.run == run]) for run in np.unique(texts.run)]
    bias = abs(estimates[0, 0]) * np.mean([np.ptp(lengths) for lengths in logs])
    later = Texts(*(column[texts.is_first == 0] for column in texts))
    deviation = np.sqrt(np.mean(within(later.score, later.run) ** 2))
    problems = len(np.unique(texts.problem))
    row(name, problems, len(texts.score), k, f"{bias:.4f}", f"{deviation:.4f}", step)


def main() -> None:
    """Print the table."""
    parser = Parser(__doc__)
    parser.add_argument("--model", default="countdown")
    parser.add_argument("--dataset", default="countdown-short")
    parser.add_argument("--data", type=Path, help="problems; drawn if not given")
    parser.add_argument("--problems", type=int, default=96)
    parser.add_argument("--base-length", type=int, action="append")
    parser.add_argument("--block-length", type=int, default=16)
    parser.add_argument("--selector", default="last-10")
    parser.add_argument("--margin", type=int, default=4)
    args = parser.options(problems=6, base_length=[32, 48])
    llm, problems = LLM(args.model), load(args.dataset, args.data, args.problems, 0)
    prompts = [item.prompt for item in problems.items]
    # Without patience, so that a run's lengths do not depend on its scores.
    settings = {"length": "dise-flexible", "length_settings": {"patience": 10}, "logprobs": None}
    runs = [
        llm.generate(
            prompts,
            SamplingParams(
                max_tokens=base, block_length=args.block_length, selector=args.selector, **settings
            ),
        )
        for base in args.base_length or (16, 24, 32, 48, 64)
    ]
    texts = compared(runs, right_lengths(llm, problems, runs))
    head("texts", "problems", "number", "k", "bias", "s.d. of s", "c")
    is_far, is_fit = np.abs(texts.excess) > args.margin, (texts.is_first > 0) & (texts.excess >= 0)
    for name, is_row in (
        (f"all with abs(L - L*) > {args.margin}", is_far),
        ("too short of them", is_far & (texts.excess < 0)),
        ("too long of them", is_far & (texts.excess > 0)),
        ("all of runs whose first text is long enough", np.isin(texts.run, texts.run[is_fit])),
    ):
        if is_row.any():
            show(name, texts, is_row)
    print()
    head("compared by", "abs(L - L*)", "L < L*", "L > 2 L*")
    k = fitted(Texts(*(column[is_far] for column in texts)))[0, 0]
    ways = {"s": (texts.score, 0.0), "s - k ln L": (texts.score - k * np.log(texts.length), 0.0)}
    ways |= {f"s, margin {margin}": (texts.score, margin) for margin in (0.001, 0.01, 0.1)}
    for name, (values, margin) in ways.items():
        numbers = chosen(texts, values, margin)
        excess, length = texts.excess[numbers], texts.length[numbers]
        is_long = np.mean(length > 2 * (length - excess))
        row(name, f"{np.abs(excess).mean():.2f}", f"{np.mean(excess < 0):.1%}", f"{is_long:.1%}")


if __name__ == "__main__":
    main()
