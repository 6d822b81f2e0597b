"""How far Monte Carlo likelihoods of three forward passes spread over seeds, for each spread of the
masks.

python benchmarks/mc_spread.py [--seeds 32] [--model countdown]

Answers by an embedded model: the standard deviation of one likelihood, in nats, of the difference
between two answers of one question and length, with masks of their own and with shared ones, and
how far the mean is from the likelihood of 256 samples.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from command import Parser, head, row

from dise_core import LLM, Floats, SamplingParams, ScoringParams

Texts = tuple[list[list[int]], list[list[int]]]
"""Prompts, and the response to each."""


def likelihoods(llm: LLM, texts: Texts, **settings: object) -> Floats:
    """Return the likelihood of each text."""
    params = ScoringParams(scorer="mc", scorer_settings=settings, logprobs=None)
    answers = llm.score(*texts, params)
    return np.array([answer.outputs[0].score.value for answer in answers])


def written(llm: LLM, num_questions: int) -> Texts:
    """Return different answers to each question."""
    questions = [f"{n + 1},{n % 7 + 2},{n % 13 + 5} -> {n + 3}" for n in range(num_questions)]
    params = SamplingParams(max_tokens=48, block_length=16, temperature=1.0, n=8, seed=0)
    texts = {
        (tuple(answer.prompt_token_ids), tuple(output.token_ids))
        for answer in llm.generate(questions, params)
        for output in answer.outputs
    }
    prompts, responses = zip(*sorted(texts), strict=True)
    return list(map(list, prompts)), list(map(list, responses))


def deviation(values: Floats) -> float:
    """Return the root mean square over texts of the standard deviation over seeds."""
    return float(np.sqrt(values.var(axis=0, ddof=1).mean()))


def main() -> None:
    """Print a row for each spread."""
    parser = Parser(__doc__)
    parser.add_argument("--seeds", type=int, default=32)
    parser.add_argument("--questions", type=int, default=4)
    parser.add_argument("--model", default="countdown")
    args = parser.options(seeds=2, questions=2)
    llm = LLM(args.model)
    texts = written(llm, args.questions)
    alike = [(prompt, len(response)) for prompt, response in zip(*texts, strict=True)]
    pairs = [(i, j) for i, j in combinations(range(len(alike)), 2) if alike[i] == alike[j]]
    first, second = np.array(pairs).T
    exact = likelihoods(llm, texts, num_samples=256, spread="systematic")
    print(f"{len(alike)} answers, {len(pairs)} pairs, {args.seeds} seeds\n")
    head("spread", "s.d.", "s.d. of a difference", "with shared masks", "mean off by")
    for spread in ("independent", "systematic", "gauss", "antithetic"):
        own, shared = (
            np.array(
                [
                    likelihoods(
                        llm, texts, num_samples=3, spread=spread, seed=seed, shared_masks=is_shared
                    )
                    for seed in range(args.seeds)
                ]
            )
            for is_shared in (False, True)
        )
        differences = [deviation(values[:, first] - values[:, second]) for values in (own, shared)]
        bias = float((own.mean(axis=0) - exact).mean())
        row(spread, *(f"{figure:.2f}" for figure in (deviation(own), *differences, bias)))


if __name__ == "__main__":
    main()
