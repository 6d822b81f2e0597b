"""Compares `dise` and `loo` on sums: python -m dise_noise_models.leave_one_out [STEPS].

Each of three networks of uniform noise, not told its level, learns two-digit sums without
1,000 of them. Of those, each right sum stands against a slip, one digit of it, and against
another sum, fluent and wrong. Prints the ROC-AUC, the mean over networks, with intervals of
95 % over problems.
"""

import math
import sys
from collections.abc import Sequence

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from dise_adapters import answer
from dise_core import (
    Floats,
    ModelInfo,
    Read,
    Reading,
    SpecialTokens,
    TokenSequence,
    completed,
    drive,
    installed_catalog,
)  # fmt: skip
from dise_noise_models.network import Network

CHARACTERS = "0123456789+=."  # the last ends an answer, and fills its canvas
END, PROMPT, CANVAS = 12, 6, 4
INFO = ModelInfo(
    "sums", 13, PROMPT + CANVAS, SpecialTokens(None, frozenset({END}), END), noise="uniform"
)
LARGE = math.log((1 + 262144 * 256) / (1 + 13 * 4))
"""What a token adds to its own log-odds in a canvas of 256 of 262,144, beyond these 4 of 13."""


def coded(problem: tuple[int, int], answered: object) -> list[int]:
    """Return the token ids of a problem and an answer, [PROMPT + CANVAS]."""
    text = "{}+{}=".format(*problem) + f"{answered}...."[:CANVAS]
    return [CHARACTERS.index(character) for character in text]


def learnt(problems: Sequence[tuple[int, int]], steps: int, seed: int) -> Network:
    """Return a network after so many batches; the share of noise is drawn from 0..1."""
    torch.manual_seed(seed)
    network = Network(len(CHARACTERS)).double()
    optimizer = torch.optim.AdamW(network.parameters(), 3e-3)
    texts = torch.tensor([coded(problem, sum(problem)) for problem in problems])
    for _ in range(steps):
        noisy = texts[torch.randint(len(texts), (128,))]
        clean = noisy[:, PROMPT:].clone()
        is_noise = torch.rand(clean.shape) < torch.rand(len(clean), 1)
        noisy[:, PROMPT:][is_noise] = torch.randint(len(CHARACTERS), clean.shape)[is_noise]
        logits, _ = network(noisy, torch.zeros(len(noisy)))
        loss = cross_entropy(logits[:, PROMPT:].flatten(0, 1), clean.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network


def wrong(total: int, draws: np.random.Generator) -> tuple[str, int]:
    """Return the total with another digit in one place, and another of about its size."""
    digits = [*str(total)]
    place = int(draws.integers(len(digits)))
    slips = [digit for digit in "0123456789" if digit != digits[place]]
    digits[place] = str(draws.choice(slips))
    return "".join(digits), total + int(draws.choice([-1, 1]) * draws.integers(1, 10))


def scores(network: Network, texts: Sequence[Sequence[int]], name: str, pull: float) -> Floats:
    """Return a scorer's score of each text. pull: is added to each token's own logit."""

    @torch.inference_mode()
    def read(reads: Sequence[Read]) -> list[Reading]:
        whole = [completed(each, INFO) for each in reads]
        ids = torch.from_numpy(np.stack([each.token_ids for each in whole]))
        logits, _ = network(ids, torch.zeros(len(ids)))
        logits.scatter_add_(2, ids[..., None], torch.full_like(logits, pull))
        return [answer(row[each.positions], each) for row, each in zip(logits, whole, strict=True)]

    scorer, selector = (
        installed_catalog().scorer(name),
        installed_catalog().selector("response-text"),
    )
    sequences = [
        TokenSequence.of(ids[:PROMPT], ids[PROMPT:], INFO.special, CANVAS) for ids in texts
    ]
    return np.array([drive(scorer.score(text, selector), read).value for text in sequences])


def auroc(right: Floats, wrong: Floats) -> float:
    """Return how often a right text has the higher score; a tie counts half."""
    ordered = np.sort(wrong)
    below = np.searchsorted(ordered, right) + np.searchsorted(ordered, right, "right")
    return float(below.mean() / 2 / len(wrong))


def main(steps: int, num_problems: int = 1000) -> None:
    """Train, score and print."""
    draws = np.random.default_rng(0)
    problems = [(int(p) // 90 + 10, int(p) % 90 + 10) for p in draws.permutation(90 * 90)]
    asked, totals = problems[:num_problems], [sum(p) for p in problems[:num_problems]]
    pairs = [wrong(total, draws) for total in totals]
    kinds = [totals, *zip(*pairs, strict=True)]
    texts = [[coded(*pair) for pair in zip(asked, kind, strict=True)] for kind in kinds]
    networks = [learnt(problems[num_problems:], steps, seed) for seed in range(3)]
    samples = [np.arange(num_problems), *draws.integers(num_problems, size=(1000, num_problems))]

    def areas(name: str, pull: float = 0.0) -> Floats:
        """Return the means over networks, [2, 1 + 1000]: slips and sums, samples after all."""
        found = [[scores(network, each, name, pull) for each in texts] for network in networks]
        return np.mean(
            [[[auroc(r[s], w[s]) for s in samples] for w in others] for r, *others in found], 0
        )

    dise, large, loo = areas("dise"), areas("dise", LARGE), areas("loo")
    rows = {"dise": dise, "loo less dise": loo - dise, "loo less dise, K large": loo - large}
    for name, both in rows.items():
        for kind, (mean, *rest) in zip(("slip", "other sum"), both, strict=True):
            low, high = np.quantile(rest, [0.025, 0.975])
            print(f"{name:22} {kind:9} {mean:6.3f} [{low:.3f}, {high:.3f}]")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
