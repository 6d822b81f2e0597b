"""Prints how far each estimate of a likelihood, and of the ratio of two policies, is off.

The texts come from a Markov chain, whose exact conditionals given any part of a text
stand in for the model, so that the truth is known.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from dise_trainers import Estimate, draw, terms_of
from torch import Tensor, nn

from dise_core import Ids, Mask, ModelInfo, Scorer, SpecialTokens, Terms, installed_catalog

VOCAB, LENGTH = 8, 24
MASK, END = VOCAB, VOCAB + 1
INFO = ModelInfo("markov", VOCAB, LENGTH, SpecialTokens(MASK, frozenset({END})))

Masks = Sequence[tuple[Mask, float]]
"""The masks of one draw, bool [n], each with the weight of its tokens."""


class Markov(nn.Module):
    """A chain of tokens that predicts each place from all visible tokens but its own."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, texts: Tensor) -> Tensor:
        """Return log-probabilities [r, N, V] for texts [r, N]."""
        chances = self.logits.softmax(-1)
        seen = nn.functional.one_hot(texts, VOCAB + 1)[..., :VOCAB].double()
        is_masked = (texts == MASK)[..., None]
        before = [torch.full_like(seen[:, 0], 1 / VOCAB)]
        behind = [torch.ones_like(seen[:, 0])]
        for at in range(texts.shape[1] - 1):
            known = torch.where(is_masked[:, at], before[-1], seen[:, at])
            before.append(known @ chances)
        for at in range(texts.shape[1] - 1, 0, -1):
            known = torch.where(is_masked[:, at], behind[-1], seen[:, at]) @ chances.T
            behind.append(known / known.sum(-1, keepdim=True))
        joint = torch.stack(before, 1) * torch.stack(behind[::-1], 1)
        return joint.log().log_softmax(-1)

    def exact(self, texts: Tensor) -> Tensor:
        """Return log p(text), [r]."""
        steps = self.logits.log_softmax(-1)[texts[:, :-1], texts[:, 1:]]
        total: Tensor = steps.sum(1) - np.log(VOCAB)
        return total


Trainer = Callable[[np.random.Generator], Masks]


def masking(count: int, random: np.random.Generator) -> Mask:
    """Return a mask of so many tokens, bool [n]."""
    is_masked = np.zeros(LENGTH, np.bool_)
    is_masked[random.permutation(LENGTH)[:count]] = True
    return is_masked


def d1(random: np.random.Generator) -> Masks:  # noqa: ARG001
    """All masked, read once; without a prompt there is nothing to draw."""
    return [(np.ones(LENGTH, np.bool_), 1.0)]


def bernoulli(random: np.random.Generator) -> Masks:
    """Each token masked with probability t, three times."""
    times = 1 - random.random(3)
    return [(random.random(LENGTH) < t, 1 / t / 3) for t in times]


def espo(random: np.random.Generator) -> Masks:
    """A mask of l in 0..n tokens and its complement."""
    count = int(random.integers(0, LENGTH + 1))
    mask, rest = masking(count, random), LENGTH - count
    pairs = ((mask, count), (~mask, rest))
    return [(each, (LENGTH + 1) / size / 2) for each, size in pairs if size]


def coupled(random: np.random.Generator) -> Masks:
    """Coupled-GRPO's three passes, divided by the 1.5 that its mean is too large by."""
    t = random.uniform(0.2, 0.8)
    mask = random.random(LENGTH) < t
    every = np.ones(LENGTH, np.bool_)
    return [(every, 1 / 3), (mask, 1 / t / 3), (~mask, 1 / (1 - t) / 3)]


def gdpo(count: int) -> Trainer:
    """floor(t n) tokens masked at the nodes of a Gauss quadrature."""
    nodes, shares = np.polynomial.legendre.leggauss(count)
    pairs = list(zip((nodes + 1) / 2, shares / 2, strict=True))

    def drawn(random: np.random.Generator) -> Masks:
        return [(masking(int(t * LENGTH), random), share / t) for t, share in pairs]

    return drawn


TRAINERS = {
    "d1, 1": d1, "Bernoulli 1/t, 3": bernoulli, "ESPO, 2": espo,
    "coupled / 1.5, 3": coupled,
    "GDPO gauss (floor), 2": gdpo(2), "GDPO gauss (floor), 3": gdpo(3),
}  # fmt: skip
SCORERS: dict[str, tuple[str, dict[str, Any]]] = {
    "mc, 1": ("mc", {"num_samples": 1}), "mc, 3": ("mc", {"num_samples": 3}),
    "mc, llada, 3": ("mc", {"num_samples": 3, "estimator": "llada"}),
    "mc gauss (ceil), 3": ("mc", {"num_samples": 3, "spread": "gauss"}),
}  # fmt: skip


Drawing = Callable[[int], list[Terms]]
"""Returns the terms of all texts by all draws, from a first seed."""


def batches(texts: Tensor, draws: int) -> Iterator[tuple[str, Drawing]]:
    """Yield each estimate's name, and what draws its terms."""
    ids = texts.numpy()
    for name, (scorer_name, settings) in SCORERS.items():
        scorer = installed_catalog().scorer(scorer_name, settings)
        yield name, partial(_drawn, scorer, ids, draws)
    for name, trainer in TRAINERS.items():
        yield name, partial(_of_trainer, trainer, ids, draws)


def _drawn(scorer: Scorer, ids: Ids, draws: int, first: int) -> list[Terms]:
    prompts, texts = [ids[0, :0]] * len(ids), list(ids)
    seeds = range(first, first + draws)
    drawn = [draw(scorer, INFO, prompts, texts, seed=seed) for seed in seeds]
    return [terms for batch in drawn for terms in batch]


def _of_trainer(trainer: Trainer, ids: Ids, draws: int, first: int) -> list[Terms]:
    seeds = range(first, first + draws)
    keys = [(seed, *text) for seed in seeds for text in ids.tolist()]
    draws_of = ((np.array(key[1:]), np.random.default_rng(key)) for key in keys)
    return [_terms(text, trainer(random)) for text, random in draws_of]


def _terms(text: Ids, masks: Masks) -> Terms:
    canvases = np.stack([np.where(mask, MASK, text) for mask, _ in masks])
    return terms_of(text, canvases, np.stack([mask * weight for mask, weight in masks]))


def chains(generator: torch.Generator) -> tuple[Markov, Markov]:
    """Return two policies, the second the first after some steps of training."""
    logits = 1.5 * torch.randn(VOCAB, VOCAB, generator=generator, dtype=torch.float64)
    step = torch.randn(VOCAB, VOCAB, generator=generator, dtype=torch.float64)
    return Markov(logits), Markov(logits + 0.15 * step)


def texts_of(chain: Markov, count: int, generator: torch.Generator) -> Tensor:
    """Return texts of the chain, int64 [count, LENGTH]."""
    texts = [torch.randint(VOCAB, (count,), generator=generator)]
    while len(texts) < LENGTH:
        chances = chain.logits[texts[-1]].softmax(-1)
        texts.append(torch.multinomial(chances, 1, generator=generator)[:, 0])
    return torch.stack(texts, 1)


@torch.no_grad()
def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=400, help="of each text")
    parser.add_argument("--texts", type=int, default=6)
    given = parser.parse_args()
    generator = torch.Generator().manual_seed(0)
    old, new = chains(generator)
    texts = texts_of(old, given.texts, generator)
    truth, ratio = old.exact(texts), new.exact(texts) - old.exact(texts)
    print(f"{given.texts} texts of {LENGTH} tokens, {given.draws} draws, nats; "
          f"log-ratio {ratio.mean():+.2f} in mean\n")  # fmt: skip
    print(f"{'estimate, passes':24}    bias      sd  ratio: bias      sd  unshared")
    estimate = Estimate(num_rows=512, forward=lambda module, ids: module(ids))
    for name, terms_from in batches(texts, given.draws):
        shared, others = terms_from(0), terms_from(given.draws)
        values, moved, apart = (
            estimate(module, batch).view(given.draws, -1)
            for module, batch in ((old, shared), (new, shared), (new, others))
        )
        bias, sd = _off(values, truth)
        ratio_bias, shared_sd = _off(moved - values, ratio)
        _, unshared_sd = _off(apart - values, ratio)
        of_ratio = f"{ratio_bias:13.2f}{shared_sd:8.3f}{unshared_sd:10.2f}"
        print(f"{name:24}{bias:8.2f}{sd:8.2f}{of_ratio}")


def _off(values: Tensor, truth: Tensor) -> tuple[float, float]:
    """Return the mean over texts of the bias and of the standard deviation over draws."""
    return float((values.mean(0) - truth).mean()), float(values.std(0).mean())


if __name__ == "__main__":
    main()
