"""Measure remask by detector and threshold: what it solves, what it spoils, and its passes.

python benchmarks/detectors.py [--data countdown_cd3_test.jsonl] [--model countdown]
    [--read visible] [--accept better --accept always] [--scorer dise --selector last-10]

The drafts are the same in all rows, so their reads are answered from memory, and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np
from command import Parser, head, row

from dise_core import LLM, MaskPredictor, Read, Reading, SamplingParams, TokenLogProbs
from dise_core.plans.rows import row_key
from dise_eval.datasets.questions import ProblemSet, load
from dise_eval.statistics import resampling
from dise_eval.statistics.metrics import Rights

THRESHOLDS = {
    "low-prob": (0.3, 0.5, 0.7, 0.9),
    "other-token": (0.5, 0.7, 0.9),
    "drop": (0.1, 0.2, 0.3, 0.5),
}


class Remembering(MaskPredictor):
    """A model that answers a Read of before from memory."""

    def __init__(self, model: MaskPredictor) -> None:
        self.model, self.info, self.tokenizer = model, model.info, model.tokenizer
        self.abilities = model.abilities
        self.known: dict[object, Reading] = {}

    @classmethod
    def claims(cls, model: str, revision: str | None = None) -> bool:  # noqa: ARG003
        return False

    @classmethod
    def load(cls, model: str, config: object) -> Self:
        raise NotImplementedError

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        keys = [_key(read) for read in reads]
        new = [index for index, key in enumerate(keys) if key not in self.known]
        readings = self.model.read([reads[index] for index in new]) if new else []
        self.known.update(zip([keys[index] for index in new], readings, strict=True))
        return [self.known[key] for key in keys]


def _key(read: Read) -> object:
    asked = read.readout
    asked_of = asked.targets.tobytes() if isinstance(asked, TokenLogProbs) else repr(asked)
    return row_key(read), read.positions.tobytes(), asked_of


def answered(llm: LLM, questions: ProblemSet, params: SamplingParams) -> tuple[Rights, float]:
    """Return which answers are right, bool [Q], and their mean passes."""
    answers = llm.generate([item.prompt for item in questions.items], params)
    is_right = [
        questions.graded(item, answer.outputs[0].text, "robust")["is_correct"]
        for item, answer in zip(questions.items, answers, strict=True)
    ]
    return np.array(is_right), float(np.mean([answer.usage.nfe for answer in answers]))


def main() -> None:
    """Print the table."""
    parser = Parser(__doc__)
    parser.add_argument("--data", type=Path, help="problems; drawn if not given")
    parser.add_argument("--problems", type=int, default=256)
    parser.add_argument("--model", default="countdown")
    parser.add_argument("--read", default="visible")
    parser.add_argument("--accept", action="append")
    parser.add_argument("--scorer", default="dise")
    parser.add_argument("--selector", default="last-10")
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--tokens-per-step", type=int, default=2)
    args = parser.options(problems=4, tokens_per_step=8)
    names = ("max_tokens", "tokens_per_step", "scorer", "selector")
    given = {name: getattr(args, name) for name in names}
    params = SamplingParams(**given, block_length=16, seed=0, logprobs=None)
    llm = LLM(Remembering(LLM(args.model).predictor))
    questions = load("countdown-short", args.data, args.problems, 0)
    before, passes = answered(llm, questions, params)
    head("remask", "solved", "difference", "mended", "spoiled", "passes")
    row("none", f"{before.mean():.1%}", "-", "-", "-", f"{passes:.1f}")
    for accept in args.accept or ("better",):
        for detector, thresholds in THRESHOLDS.items():
            for threshold in thresholds:
                chosen = {"detector": detector, "threshold": threshold, "accept": accept}
                update = {"reviser": "remask", "reviser_settings": {**chosen, "read": args.read}}
                after, passes = answered(llm, questions, params.model_copy(update=update))
                gain = resampling.mean(after.astype(float) - before, True)
                row(
                    f"{detector} {threshold}, {accept}", f"{after.mean():.1%}",
                    f"{100 * gain.value:+.1f} [{100 * gain.low:+.1f}, {100 * gain.high:+.1f}]",
                    (after & ~before).sum(), (before & ~after).sum(), f"{passes:.1f}",
                )  # fmt: skip


if __name__ == "__main__":
    main()
