"""Monte Carlo estimates of the likelihood of the selected tokens given all others; the
published ones differ in how many tokens a sample masks.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import Field, PositiveInt, model_validator

from dise_core import Noise, Plan, Read, Score, Scorer, Selector, Terms, TokenSequence
from dise_core.arrays import Floats, Ids, Mask
from dise_core.plans.plan import READS_AT_ONCE
from dise_core.plans.reading import Guidance
from dise_strategies.scorers.masked import masked_read


@dataclass(frozen=True, slots=True)
class MaskingSample:
    """A masking of the selected tokens, bool [n], and its weight."""

    is_masked: Mask
    weight: float


class MonteCarloScorer(Scorer):
    """Estimates log p(selected tokens | all others), in nats, with its standard error: the mean
    over samples of weight · Σ log p(masked token | partly masked text).

    The selector "response" gives the conditional log-likelihood, "full" the unconditional
    one. A block-causal model reads each block after the finished earlier ones, in which
    nothing is masked.
    Training: on masks alone is enough. NFE: num_samples, minus those that mask nothing.
    cfg_scale guides each sample with the same text whose whole prompt is masked too, as
    `cfg` in LLaDA's evaluation, at twice the NFE; a text without a prompt cannot be
    guided.
    """

    default_selector: ClassVar[str] = "response"
    reads_end: ClassVar[bool] = False
    is_among_allowed: ClassVar[bool] = False
    needs_masks: ClassVar[bool] = True

    num_samples: int = Field(default=32, ge=1, le=1_000_000)
    """Random maskings to average over."""
    seed: int = Field(default=0, ge=0, lt=2**64)
    """Of the random maskings."""
    shared_masks: bool = False
    """Whether texts of one prompt with equally many selected tokens get the same
    maskings, so that their scores differ by less chance."""
    cfg_scale: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Scale of classifier-free guidance; 0 turns it off."""

    @property
    def group_size(self) -> int:
        """Samples that are drawn together; groups are independent."""
        return 1

    @model_validator(mode="after")
    def _is_whole_groups(self) -> Self:
        count, size = self.num_samples, self.group_size
        if count % size:
            raise ValueError(
                f"num_samples={count} must be a multiple of {size}, the samples that are drawn "
                "together"
            )
        return self

    @abstractmethod
    def group(self, num_tokens: int, random: np.random.Generator) -> Iterator[MaskingSample]:
        """Yield group_size random maskings of num_tokens >= 1 tokens."""

    def samples(self, num_tokens: int, random: np.random.Generator) -> Iterator[MaskingSample]:
        """Yield num_samples random maskings of num_tokens >= 1 tokens."""
        for _ in range(self.num_samples // self.group_size):
            yield from self.group(num_tokens, random)

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        positions = self.positions(sequence, selector)
        if len(positions) == 0:
            return Score.of_nothing()
        reads, estimates = self._weighted_reads(sequence, positions), np.zeros(self.num_samples)
        while batch := list(islice(reads, READS_AT_ONCE)):
            readings = yield [read for _, _, read in batch]
            for (index, weight, _), reading in zip(batch, readings, strict=True):
                estimates[index] = weight * reading.logprobs.sum(dtype=np.float64)
        value = float(estimates.mean())
        return Score(value, positions, self.standard_error(estimates), log_likelihood=value)

    def terms(self, sequence: TokenSequence, selector: Selector) -> Plan[Terms]:
        """The Reads of all samples are held at once."""
        yield from ()
        positions = self.positions(sequence, selector)
        if len(positions) == 0:
            return Terms()
        reads = list(self._weighted_reads(sequence, positions))
        weights = [np.full(len(r.positions), weight / self.num_samples) for _, weight, r in reads]
        return Terms([read for _, _, read in reads], weights, positions)

    def _weighted_reads(
        self, sequence: TokenSequence, positions: Ids
    ) -> Iterator[tuple[int, float, Read]]:
        """Yield the index, the weight and the Read of each sample that masks some of the
        selected tokens; the same maskings each time.
        """
        key = (sequence.prompt, len(positions)) if self.shared_masks else (sequence.ids, 0)
        random = Noise.for_request(self.seed, *key).generator()
        for index, sample in enumerate(self.samples(len(positions), random)):
            if sample.is_masked.any():
                hidden = positions[sample.is_masked]
                guidance = Guidance.without_prompt(sequence, hidden, self.cfg_scale)
                read = masked_read(sequence, hidden, hidden, guidance)
                yield index, sample.weight, read

    def positions(self, sequence: TokenSequence, selector: Selector) -> Ids:
        return np.flatnonzero(selector.select(sequence))

    def standard_error(self, estimates: Floats) -> float | None:
        """Return the standard error of their mean from the groups' means, or for a single
        group from its samples, which overestimates it; None for one sample.
        """
        groups = estimates.reshape(-1, self.group_size).mean(axis=1)
        values = groups if len(groups) > 1 else estimates
        return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else None


class MonteCarlo(MonteCarloScorer):
    """The paper's estimator, Eq. (1): masks l of n tokens, l uniform in 1..n, with weight
    n / l.

    The spread "gauss" lowers the variance. A group of it is three samples, or the one or
    two that there are: ceil(n t) tokens at each node t of a Gauss quadrature, with a
    small bias. One group tells no standard error.
    """

    suits: ClassVar[str] = "likelihoods: of four choices, 84.6 % right"

    spread: Literal["independent", "gauss"] = "independent"
    """How the numbers of masks are drawn."""

    @property
    def group_size(self) -> int:
        return 1 if self.spread == "independent" else min(self.num_samples, 3)

    def group(self, num_tokens: int, random: np.random.Generator) -> Iterator[MaskingSample]:
        if self.spread == "independent":
            yield _masking_exactly(int(random.integers(1, num_tokens + 1)), num_tokens, random)
        else:
            yield from _at_nodes(self.group_size, num_tokens, random)

    def standard_error(self, estimates: Floats) -> float | None:
        return super().standard_error(estimates) if len(estimates) > self.group_size else None


class StratifiedMonteCarlo(MonteCarloScorer):
    """LLaDA's own likelihood estimator: like "mc", but l is spread evenly over each
    batch. It goes from a random start over 1..n, modulo n, which lowers the variance. The
    standard error comes from the batch means, or for a single batch from its samples,
    which overestimates it.
    """

    batch_size: PositiveInt | None = None
    """Samples over which the numbers of masks are spread evenly; None: all of them."""

    @property
    def group_size(self) -> int:
        return self.batch_size or self.num_samples

    def group(self, num_tokens: int, random: np.random.Generator) -> Iterator[MaskingSample]:
        count = self.group_size
        first = int(random.integers(1, num_tokens + 1))
        stop = first + (count - 1) * (num_tokens / count)
        lengths = np.round(np.linspace(first, stop, count)).astype(np.int64)
        for num_masked in (lengths - 1) % num_tokens + 1:
            yield _masking_exactly(int(num_masked), num_tokens, random)


class DreamMonteCarlo(MonteCarloScorer):
    """Dream's own likelihood estimator: masks each token with probability t, with weight
    1 / t.

    An end token is appended to a text without one, if there is room; the first and last
    tokens are never masked. The t are evenly spaced over [eps, 1) from a random start,
    modulo 1; the standard error of the samples overestimates the true one.
    """

    eps: float = Field(default=1e-3, gt=0, lt=1)
    """The least probability of masking a token."""

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        return (yield from super().score(sequence.ended(sequence.special.eos_id), selector))

    def terms(self, sequence: TokenSequence, selector: Selector) -> Plan[Terms]:
        return (yield from super().terms(sequence.ended(sequence.special.eos_id), selector))

    def positions(self, sequence: TokenSequence, selector: Selector) -> Ids:
        positions = super().positions(sequence, selector)
        return positions[(positions > 0) & (positions < len(sequence) - 1)]

    @property
    def group_size(self) -> int:
        return self.num_samples

    def group(self, num_tokens: int, random: np.random.Generator) -> Iterator[MaskingSample]:
        times = (random.random() + np.arange(self.num_samples) / self.num_samples) % 1
        for t in (1 - self.eps) * times + self.eps:
            yield MaskingSample(random.random(num_tokens) < t, 1 / t)


def _masking_exactly(
    num_masked: int, num_tokens: int, random: np.random.Generator
) -> MaskingSample:
    is_masked = np.zeros(num_tokens, dtype=np.bool_)
    is_masked[random.permutation(num_tokens)[:num_masked]] = True
    return MaskingSample(is_masked, num_tokens / num_masked)


def _at_nodes(count: int, num_tokens: int, random: np.random.Generator) -> Iterator[MaskingSample]:
    nodes, weights = np.polynomial.legendre.leggauss(count)
    for node, weight in zip(nodes, weights, strict=True):
        sample = _masking_exactly(math.ceil(num_tokens * (node + 1) / 2), num_tokens, random)
        yield replace(sample, weight=sample.weight * count * weight / 2)
