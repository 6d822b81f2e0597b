"""Monte Carlo estimates of the likelihood of the selected tokens given all others."""

import math
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


class MonteCarlo(Scorer):
    """Estimates log p(selected tokens | all others), in nats, with its standard error: the mean
    over samples of weight · Σ log p(masked token | partly masked text).

    `estimator` says which tokens a sample masks. "paper": l of n, l uniform in 1..n, with
    weight n / l, Eq. (1). "llada", as LLaDA's own evaluation: the same, but over
    `batch_size` samples l goes evenly from a random start over 1..n, modulo n, which lowers
    the variance. "dream", as Dream's: each with probability t, with weight 1 / t, the t
    evenly spaced over [eps, 1) from a random start, modulo 1; an end token is appended to
    a text without one, if there is room, and the first and last tokens are never masked.

    The selector "response" gives the conditional log-likelihood, "full" the unconditional
    one. A block-causal model reads each block after the finished earlier ones, in which
    nothing is masked.
    Training: on masks alone is enough. NFE: num_samples, minus those that mask nothing.
    cfg_scale guides each sample with the same text whose whole prompt is masked too, as
    `cfg` in LLaDA's evaluation, at twice the NFE; a text without a prompt cannot be
    guided.
    """

    suits: ClassVar[str] = "likelihoods: of four choices, 84.6 % right"
    default_selector: ClassVar[str] = "response"
    reads_end: ClassVar[bool] = False
    needs_masks: ClassVar[bool] = True

    estimator: Literal["paper", "llada", "dream"] = "paper"
    """Whose."""
    num_samples: int = Field(default=32, ge=1, le=1_000_000)
    """Random maskings to average over."""
    seed: int = Field(default=0, ge=0, lt=2**64)
    """Of the random maskings."""
    shared_masks: bool = False
    """Whether texts of one prompt with equally many selected tokens get the same
    maskings, so that their scores differ by less chance."""
    cfg_scale: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Scale of classifier-free guidance; 0 turns it off."""

    spread: Literal["independent", "gauss"] = "independent"
    """Of "paper": how the numbers of masks are drawn. "gauss" lowers the variance, at a
    small bias: by threes, or the one or two that there are, ceil(n t) tokens at each node t
    of a Gauss quadrature."""
    batch_size: PositiveInt | None = None
    """Of "llada": samples over which the numbers of masks are spread evenly; None: all."""
    eps: float = Field(default=1e-3, gt=0, lt=1)
    """Of "dream": the least probability of masking a token."""

    @property
    def group_size(self) -> int:
        """Samples that are drawn together; groups are independent."""
        if self.estimator == "llada":
            return self.batch_size or self.num_samples
        if self.estimator == "dream":
            return self.num_samples
        return 1 if self.spread == "independent" else min(self.num_samples, 3)

    @model_validator(mode="after")
    def _has_settings_of_its_own(self) -> Self:
        for setting, estimator in (("spread", "paper"), ("batch_size", "llada"), ("eps", "dream")):
            is_set = getattr(self, setting) != type(self).model_fields[setting].default
            if is_set and self.estimator != estimator:
                raise ValueError(
                    f"{setting} is a setting of estimator={estimator!r}, not of "
                    f"{self.estimator!r}: leave it out, or take that estimator"
                )
        return self

    @model_validator(mode="after")
    def _is_whole_groups(self) -> Self:
        count, size = self.num_samples, self.group_size
        if count % size:
            raise ValueError(
                f"num_samples={count} must be a multiple of {size}, the samples that are drawn "
                "together"
            )
        return self

    def group(self, num_tokens: int, random: np.random.Generator) -> Iterator[MaskingSample]:
        """Yield group_size random maskings of num_tokens >= 1 tokens."""
        count = self.group_size
        if self.estimator == "llada":
            return _spread_evenly(count, num_tokens, random)
        if self.estimator == "dream":
            return _spread_over_time(count, self.eps, num_tokens, random)
        if self.spread == "gauss":
            return _at_nodes(count, num_tokens, random)
        return iter([_masking_exactly(int(random.integers(1, num_tokens + 1)), num_tokens, random)])

    def samples(self, num_tokens: int, random: np.random.Generator) -> Iterator[MaskingSample]:
        """Yield num_samples random maskings of num_tokens >= 1 tokens."""
        for _ in range(self.num_samples // self.group_size):
            yield from self.group(num_tokens, random)

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        sequence = self._ended(sequence)
        positions = self.positions(sequence, selector)
        if len(positions) == 0:
            return Score.empty()
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
        sequence = self._ended(sequence)
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

    def _ended(self, sequence: TokenSequence) -> TokenSequence:
        is_dreams = self.estimator == "dream"
        return sequence.ended(sequence.special.eos_id) if is_dreams else sequence

    def positions(self, sequence: TokenSequence, selector: Selector) -> Ids:
        positions = np.flatnonzero(selector.select(sequence))
        if self.estimator != "dream":
            return positions
        return positions[(positions > 0) & (positions < len(sequence) - 1)]

    def standard_error(self, estimates: Floats) -> float | None:
        """Return the standard error of their mean from the groups' means, or for a single
        group from its samples, which overestimates it; None for one sample, and for the
        one group of a quadrature.
        """
        if self.estimator == "paper" and len(estimates) <= self.group_size:
            return None
        groups = estimates.reshape(-1, self.group_size).mean(axis=1)
        values = groups if len(groups) > 1 else estimates
        return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else None


def _masking_exactly(
    num_masked: int, num_tokens: int, random: np.random.Generator
) -> MaskingSample:
    is_masked = np.zeros(num_tokens, dtype=np.bool_)
    is_masked[random.permutation(num_tokens)[:num_masked]] = True
    return MaskingSample(is_masked, num_tokens / num_masked)


def _spread_evenly(
    count: int, num_tokens: int, random: np.random.Generator
) -> Iterator[MaskingSample]:
    first = int(random.integers(1, num_tokens + 1))
    stop = first + (count - 1) * (num_tokens / count)
    lengths = np.round(np.linspace(first, stop, count)).astype(np.int64)
    for num_masked in (lengths - 1) % num_tokens + 1:
        yield _masking_exactly(int(num_masked), num_tokens, random)


def _spread_over_time(
    count: int, eps: float, num_tokens: int, random: np.random.Generator
) -> Iterator[MaskingSample]:
    times = (random.random() + np.arange(count) / count) % 1
    for t in (1 - eps) * times + eps:
        yield MaskingSample(random.random(num_tokens) < t, 1 / t)


def _at_nodes(count: int, num_tokens: int, random: np.random.Generator) -> Iterator[MaskingSample]:
    nodes, weights = np.polynomial.legendre.leggauss(count)
    for node, weight in zip(nodes, weights, strict=True):
        sample = _masking_exactly(math.ceil(num_tokens * (node + 1) / 2), num_tokens, random)
        yield replace(sample, weight=sample.weight * count * weight / 2)
