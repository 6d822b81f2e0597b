"""lm-polygraph's benchmark manager runs the embedded model on 256 Countdown problems, with two of
its own estimators beside DiSE, and computes its prediction rejection ratio of each.

pip install '.[eval,polygraph]'
python examples/uncertainty/with_polygraph.py
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from lm_polygraph import Dataset, UEManager
from lm_polygraph.estimators import MaximumSequenceProbability, Perplexity
from lm_polygraph.ue_metrics import PredictionRejectionArea
from lm_polygraph.utils.builder_enviroment_stat_calculator import BuilderEnvironmentStatCalculator

from dise_core import LLM, SamplingParams, ScoringParams
from dise_eval import load, prr
from dise_eval.polygraph import DiseEstimator, DiseModel, Graded, calculators


def manager(num_questions: int = 256, data: Path | None = None) -> UEManager:
    """Return lm-polygraph's manager of the benchmark, which has not run yet."""
    questions = load("countdown-short", data, num_questions)
    prompts = [question.prompt for question in questions.items]
    params = SamplingParams(max_tokens=48, block_length=16, seed=0)
    model = DiseModel(LLM("countdown"), params)
    return UEManager(
        Dataset(prompts, [""] * len(prompts), batch_size=64),
        model,
        [
            Perplexity(),
            MaximumSequenceProbability(),
            DiseEstimator(model),
            DiseEstimator(model, ScoringParams(scorer="shadow")),
        ],
        BuilderEnvironmentStatCalculator(model),
        calculators(),
        [Graded(questions)],
        [PredictionRejectionArea(), PredictionRejectionArea(0.5)],
        processors=[],
        ignore_exceptions=False,
    )


def main() -> None:
    """Run the benchmark; print lm-polygraph's figures, and ours of the same answers."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--limit", type=int, default=256, help="the number of problems")
    parser.add_argument(
        "--data", type=Path, help="JSON lines of problems; without it they are drawn"
    )
    given = parser.parse_args()
    benchmark = manager(given.limit, given.data)
    figures = benchmark()
    [(_, graded)] = benchmark.gen_metrics
    is_right = np.array(benchmark.gen_metrics["sequence", graded]) == 1
    print(f"{is_right.sum()} of {len(is_right)} right")
    print(f"{'estimator':28}{'PRR':>8}{'ours':>8}{'PRR 0.5':>10}{'ours':>8}")
    for level, name in benchmark.estimations:
        scores = -np.array(benchmark.estimations[level, name])
        theirs = [figures[level, name, graded, f"{key}_normalized"] for key in ("prr", "prr_0.5")]
        ours = [prr(scores, is_right), prr(scores, is_right, 0.5)]
        print(f"{name:28}{theirs[0]:8.3f}{ours[0]:8.3f}{theirs[1]:10.3f}{ours[1]:8.3f}")


if __name__ == "__main__":
    main()
