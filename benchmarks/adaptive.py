"""Measure adaptive best-of-N beside plain best-of-N at equal settings: what both solve, and their
forward passes.

python benchmarks/adaptive.py [--data countdown_cd3_test.jsonl] [--model countdown]
    [--tokens-per-step 2] [--scorer dise --selector last-10] [--stop-at 0.5 --stop-at 0.9]

The calibration is fitted on answers to --problems others, which are drawn, written at the same
settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from command import Parser, head, row

from dise_core import LLM, RequestOutput, SamplingParams
from dise_core.front.calibrated import fitted_settings
from dise_core.scoring.calibration import Calibration, Holding, fingerprint
from dise_eval.calibration.fitting import Labels
from dise_eval.calibration.making import make
from dise_eval.datasets.questions import ProblemSet, load

SEED = 1


def right(questions: ProblemSet, answers: Sequence[RequestOutput]) -> list[list[bool]]:
    """Return which of the outputs of each answer are right."""
    return [
        [questions.graded(item, output.text, "robust")["is_correct"] for output in answer.outputs]
        for item, answer in zip(questions.items, answers, strict=True)
    ]


def written(llm: LLM, questions: ProblemSet, params: SamplingParams) -> list[RequestOutput]:
    """Return the answers to all questions."""
    return llm.generate([item.prompt for item in questions.items], params)


def calibrated(llm: LLM, params: SamplingParams, num_problems: int) -> Calibration:
    """Return a calibration fitted on all answers to drawn problems."""
    questions = load("countdown-short", None, num_problems, SEED)
    answers = written(llm, questions, params.model_copy(update={"n": params.num_samples}))
    scores = np.array([[output.score.value for output in answer.outputs] for answer in answers])
    numbers = np.repeat(np.arange(len(scores)), scores.shape[1])
    labels = Labels(scores.ravel(), np.array(right(questions, answers)).ravel(), numbers)
    each = params.model_dump(mode="json") | {"n": 1, "best_of": None, "stop_at": None}
    scorer = llm.catalog.scorer(params.scorer, params.scorer_settings)
    scored_by = {
        "model": llm.predictor.info.name,
        "fingerprint": fingerprint(llm.predictor),
        "judge": None,
        "scorer": params.scorer,
        "selector": answers[0].outputs[0].selector,
        "scorer_settings": scorer.model_dump(mode="json"),
        "holds_for": Holding(texts="written", settings=fitted_settings([each], llm.catalog)),
    }
    return make(labels, scored_by, None, None, "sgr", "drawn problems").calibration


def show(name: str, questions: ProblemSet, answers: Sequence[RequestOutput], plain: float) -> None:
    """Print a row: the share solved, the mean passes, and these beside the plain ones."""
    solved = np.mean([each[0] for each in right(questions, answers)])
    passes = np.mean([answer.usage.nfe for answer in answers])
    row(name, f"{solved:.1%}", f"{passes:.1f}", f"{passes / plain:.0%}")


def main() -> None:
    """Print the table."""
    parser = Parser(__doc__)
    parser.add_argument("--data", type=Path, help="problems; drawn if not given")
    parser.add_argument("--problems", type=int, default=256)
    parser.add_argument("--model", default="countdown")
    parser.add_argument("--best-of", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--block-length", type=int)
    parser.add_argument("--tokens-per-step", type=int, default=2)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--scorer", default="dise")
    parser.add_argument("--selector")
    parser.add_argument("--stop-at", type=float, action="append")
    args = parser.options(problems=16, best_of=4, stop_at=[0.5], block_length=16, tokens_per_step=8)
    names = ("max_tokens", "tokens_per_step", "temperature", "scorer", "selector", "best_of")
    blocks = {} if args.block_length is None else {"block_length": args.block_length}
    given = {name: getattr(args, name) for name in names} | blocks
    params = SamplingParams(**given, seed=0, logprobs=None)
    llm, questions = LLM(args.model), load("countdown-short", args.data, args.problems, 0)
    adaptive = LLM(llm.predictor, calibration=calibrated(llm, params, args.problems))
    single = written(llm, questions, params.model_copy(update={"best_of": 1}))
    answers = written(llm, questions, params)
    plain = float(np.mean([answer.usage.nfe for answer in answers]))
    head("drawn", "solved", "passes", "of plain")
    show("one answer", questions, single, plain)
    show(f"best of {args.best_of}", questions, answers, plain)
    for stop_at in args.stop_at or (0.5, 0.7, 0.8, 0.9):
        answers = written(adaptive, questions, params.model_copy(update={"stop_at": stop_at}))
        show(f"best of {args.best_of}, stop at {stop_at:g}", questions, answers, plain)


if __name__ == "__main__":
    main()
