"""Measure thresholds with a promise: how many drawn sets of labels keep one, what it answers, and
how often the promise is broken, beside the rules as published.

python benchmarks/thresholds.py [--labels 300] [--max-risk 0.15] [--sets 1000]

Scores are normal, and an answer of score s is wrong with probability 1 / (1 + exp(2 s + 0.3)).
"wrong near the top": those above s = 1.5 are wrong with probability 0.2 at least. The risk above a
threshold is that of 200,000 such answers, exact in their labels. As published, sgr divides delta
among all of the log2(n) steps of its search, and ltt tests Hoeffding's and Bentkus' p-values from
one start until one fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from command import Parser, head, row
from scipy.special import bdtr, rel_entr

from dise_eval.calibration.fitting import Labels
from dise_eval.calibration.guarantee import Promise, RankedLabels
from dise_eval.calibration.searching import Search
from dise_eval.statistics.metrics import Scores

FEW = 12
"""The sets that are counted apart: the first ones."""

Finding = Callable[[RankedLabels, Promise], int]
"""Returns the rank of a threshold, 0 without one."""


def drawn(seed: int, size: int, least_at_top: float) -> tuple[Labels, Scores]:
    """Return labels, and the probability of each answer to be wrong."""
    random = np.random.default_rng(seed)
    scores = random.normal(size=size)
    risk = 1 / (1 + np.exp(2 * scores + 0.3))
    risk = np.where(scores > 1.5, np.maximum(risk, least_at_top), risk)
    return Labels(scores, random.random(size) >= risk, np.arange(size)), risk


def sgr_as_published(ranks: RankedLabels, promise: Promise) -> int:
    """Return the rank that the binary search of Geifman and El-Yaniv ends at."""
    steps = math.ceil(math.log2(ranks.num_labels))
    low, high, best = 1, ranks.num_labels - 1, 0
    for _ in range(steps):
        middle = math.ceil((low + high) / 2)
        trial = ranks.trial(middle, promise.max_risk, promise.delta / steps)
        if trial.passes:
            best, low = max(best, middle), min(middle + 1, ranks.num_labels - 1)
        else:
            high = max(middle - 1, 1)
    return best


def hoeffding_bentkus(kept: int, wrong: int, max_risk: float) -> float:
    """Return the p-value of any risk in [0, 1], of which a share of wrong answers is one."""
    share = min(wrong / kept, max_risk)
    entropy = rel_entr(share, max_risk) + rel_entr(1 - share, 1 - max_risk)
    return float(min(1, math.exp(-kept * entropy), math.e * bdtr(wrong, kept, max_risk)))


def ltt_as_published(ranks: RankedLabels, promise: Promise) -> int:
    """Return the last rank that passes in one fixed sequence."""
    total, risk = ranks.num_labels, promise.max_risk
    halves = ((n, hoeffding_bentkus(n, math.floor(n * risk / 2), risk)) for n in range(1, total))
    start, best = next((n for n, p in halves if p <= promise.delta), total), 0
    for rank in range(start, total, max(1, total // 100)):
        trial = ranks.trial(rank, risk, promise.delta)
        if hoeffding_bentkus(trial.num_kept, trial.num_wrong, risk) > promise.delta:
            break
        best = rank
    return best


def ours(rule: str) -> Finding:
    """Return what finds a threshold as `dise calibrate --rule` does."""

    def find(ranks: RankedLabels, promise: Promise) -> int:
        best = Search.by("sgr" if rule == "sgr" else "ltt", ranks, promise).best
        return 0 if best is None else best.rank

    return find


RULES: dict[str, Finding] = {
    "sgr, as published": sgr_as_published,
    "sgr": ours("sgr"),
    "ltt, as published": ltt_as_published,
    "ltt": ours("ltt"),
}


def measure(name: str, least_at_top: float, promise: Promise, size: int, count: int) -> None:
    """Print a row for each rule on the same sets."""
    everyone, risk = drawn(2**32, 200_000, least_at_top)
    order = np.argsort(-everyone.scores)
    risks = np.cumsum(risk[order]) / np.arange(1, len(order) + 1)
    sets = [RankedLabels.of(drawn(seed, size, least_at_top)[0]) for seed in range(count)]
    for rule, find in RULES.items():
        found = [find(ranks, promise) for ranks in sets]
        kept = [rank > 0 for rank in found]
        pairs = [(ranks, rank) for ranks, rank in zip(sets, found, strict=True) if rank]
        answered = sum(int(ranks.num_kept[rank - 1]) for ranks, rank in pairs)
        least = [ranks.thresholds[rank - 1] for ranks, rank in pairs]
        above = np.searchsorted(-everyone.scores[order], -np.array(least), side="right")
        broken = (risks[np.maximum(above, 1) - 1] > promise.max_risk).sum() / count
        row(name, rule, f"{sum(kept[:FEW])} of {len(kept[:FEW])}", f"{np.mean(kept):.1%}",
            f"{answered / size / count:.1%}", f"{broken:.1%}", count)  # fmt: skip


def main() -> None:
    """Run the benchmark."""
    parser = Parser(__doc__)
    parser.add_argument("--labels", type=int, default=300, help="of each set")
    parser.add_argument("--max-risk", type=float, default=0.15)
    parser.add_argument("--sets", type=int, default=1000)
    options = parser.options(sets=20)
    promise = Promise(options.max_risk, 0.95)
    head("risk", "rule", f"of the first {FEW}", "sets kept", "answered", "broken", "sets")
    for name, least in (("falls with the score", 0.0), ("wrong near the top", 0.2)):
        measure(name, least, promise, options.labels, options.sets)


if __name__ == "__main__":
    main()
