"""Measure search guided by scores beside best-of-N at about as many passes: what each way solves.

python benchmarks/search.py [--data countdown_cd3_test.jsonl] [--model countdown]
    [--temperature 0.7 --temperature 1] [--stop-at -0.02]

Each difference is that from the search, on the same problems, with its 95 % bootstrap interval.
The vote goes to the answer that most block lengths lead to, in a tie to the first written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from command import Parser, head, row

from dise_core import LLM, CompletionOutput, RequestOutput, SamplingParams
from dise_eval.datasets.questions import ProblemSet, load
from dise_eval.graders.verdict import VerdictRecord
from dise_eval.statistics import resampling

VOTERS = (16, 8, 32)
"""Block lengths, the first that of all other ways."""

Chosen = Sequence[CompletionOutput]
Choice = Callable[[CompletionOutput], float]


def written(answer: CompletionOutput, last: int | None = None) -> float:
    """Return the sum of the log-probabilities that an answer's tokens had when they were written,
    or the mean over the last ones before its end.
    """
    assert answer.writing is not None
    logprobs = answer.writing.logprobs[-len(answer.tokens) :]
    if last is None:
        return float(np.nansum(logprobs))
    is_text = [not token.is_end for token in answer.tokens]
    return float(np.mean(logprobs[is_text][-last:])) if any(is_text) else -np.inf


def best(answers: Sequence[RequestOutput], value: Choice) -> list[CompletionOutput]:
    """Return the output of each answer with the highest value; of equal ones the first written."""
    return [
        max(answer.outputs, key=lambda output: (value(output), -output.index)) for answer in answers
    ]


def majority(verdicts: Sequence[VerdictRecord]) -> bool:
    """Return whether the most frequent extracted answer, the first written in a tie, is right."""
    votes = Counter(verdict["extracted"] for verdict in verdicts if verdict["extracted"])
    [(winner, _)] = votes.most_common(1) or [(None, 0)]
    return any(one["is_correct"] for one in verdicts if one["extracted"] == winner)


def compare(llm: LLM, questions: ProblemSet, params: SamplingParams, stop_at: list[float]) -> None:
    """Print a row for each way at these settings."""

    def answers(**changes: object) -> list[RequestOutput]:
        settings = params.model_dump(exclude_unset=True) | changes
        return llm.generate([item.prompt for item in questions.items], SamplingParams(**settings))

    def graded(outputs: Chosen) -> list[VerdictRecord]:
        pairs = zip(questions.items, outputs, strict=True)
        return [questions.graded(item, output.text, "robust") for item, output in pairs]

    def solved(outputs: Chosen) -> np.ndarray:
        return np.array([verdict["is_correct"] for verdict in graded(outputs)], float)

    def passes(*runs: Sequence[RequestOutput]) -> float:
        return float(sum(np.mean([answer.usage.nfe for answer in run]) for run in runs))

    by_writing = {"scorer": "written", "scorer_settings": {"aggregate": "sum"}}
    searched = answers(search="smc", **by_writing)
    plain, four = answers(**by_writing), answers(n=4)
    voters = [answers(block_length=length, **by_writing) for length in VOTERS[1:]]
    votes = zip(*(graded(best(run, written)) for run in (plain, *voters)), strict=True)
    # The scores, of which equal answers share one.
    free = passes(four) - np.mean([len({one.token_ids for one in its.outputs}) for its in four])
    ways = {
        "smc, 4 particles": (solved(best(searched, written)), passes(searched)),
        "one answer": (solved(best(plain, written)), passes(plain)),
        "best of 4, written sum": (solved(best(four, written)), free),
        "best of 4, written last-10": (solved(best(four, lambda one: written(one, 10))), free),
        "best of 4, dise": (solved(best(four, lambda one: one.score.value)), passes(four)),
    }
    for stop in stop_at:
        adaptive = answers(best_of=8, stop_at=stop)
        ways[f"up to 8, stop at dise {stop:g}"] = (
            solved([answer.outputs[0] for answer in adaptive]),
            passes(adaptive),
        )
    voted = np.array([majority(verdicts) for verdicts in votes], float)
    ways[f"vote of blocks {VOTERS}"] = voted, passes(plain, *voters)
    reference, _ = ways["smc, 4 particles"]
    for name, (rights, cost) in ways.items():
        gap = resampling.mean(rights - reference, True)
        interval = f"{gap.value:+.1%} [{gap.low:+.1%}, {gap.high:+.1%}]"
        shown = "" if rights is reference else interval
        row(f"{name}, at {params.temperature:g}", f"{rights.mean():.1%}", f"{cost:.1f}", shown)


def main() -> None:
    """Print the table."""
    parser = Parser(__doc__)
    parser.add_argument("--data", type=Path, help="problems; drawn if not given")
    parser.add_argument("--problems", type=int, default=256)
    parser.add_argument("--model", default="countdown")
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--tokens-per-step", type=int, default=2)
    parser.add_argument("--temperature", type=float, action="append")
    parser.add_argument("--stop-at", type=float, action="append")
    args = parser.options(problems=4, temperature=[1.0], tokens_per_step=8)
    llm, questions = LLM(args.model), load("countdown-short", args.data, args.problems, 0)
    head("way", "solved", "passes", "beyond smc")
    for temperature in args.temperature or (0.7, 1.0):
        params = SamplingParams(
            max_tokens=args.max_tokens, block_length=VOTERS[0], temperature=temperature,
            tokens_per_step=args.tokens_per_step, logprobs=None, seed=0,
        )  # fmt: skip
        compare(llm, questions, params, args.stop_at or [-0.02])


if __name__ == "__main__":
    main()
