"""Scorers, and the selectors of the positions that they average over."""

from abc import abstractmethod
from functools import reduce
from typing import ClassVar, Literal

import numpy as np
from pydantic import SerializeAsAny

from dise_core.arrays import Mask, Weights
from dise_core.errors import InputError, PluginError
from dise_core.plans.plan import Plan
from dise_core.plans.readouts import Confidence
from dise_core.scoring.score import Score
from dise_core.scoring.strategy import Strategy
from dise_core.scoring.terms import Terms
from dise_core.sequence import TokenSequence


class Selector(Strategy):
    """Chooses the positions that a score averages over: the paper's binary mask M."""

    @abstractmethod
    def select(self, sequence: TokenSequence) -> Mask:
        """Return M, bool [N], and change no sequence. Selecting nothing is allowed."""

    def weights(self, sequence: TokenSequence) -> Weights:  # noqa: ARG002
        """Return what each token counts in a mean, float [N]: finite, not negative, and 0
        where M is False; None where all that it selects count alike.
        """
        return None

    @property
    def is_weighted(self) -> bool:
        """Whether it may return weights."""
        return type(self).weights is not Selector.weights


class Union(Selector):
    """Selects every position that one of its parts selects: A+B. A token's weight is the
    largest that a part gives it; a part without weights gives 1 to what it selects.
    """

    parts: tuple[SerializeAsAny[Selector], ...]

    def select(self, sequence: TokenSequence) -> Mask:
        return reduce(
            lambda union, part: union | part.select(sequence), self.parts, sequence.mask_of([])
        )

    def weights(self, sequence: TokenSequence) -> Weights:
        rows = [part.weights(sequence) for part in self.parts]
        if all(row is None for row in rows):
            return None
        pairs = zip(self.parts, rows, strict=True)
        alike = [part.select(sequence) if row is None else row for part, row in pairs]
        weights: Weights = np.max(alike, axis=0)
        return weights

    @property
    def is_weighted(self) -> bool:
        return any(part.is_weighted for part in self.parts)


class Narrowing(Selector):
    """Selects some of what another selector does. Its weights are the other's, of which
    those outside of its own mask count for nothing.
    """

    inner: SerializeAsAny[Selector]

    def weights(self, sequence: TokenSequence) -> Weights:
        return self.inner.weights(sequence)

    @property
    def is_weighted(self) -> bool:
        return self.inner.is_weighted


class Scorer(Strategy):
    """Measures how sure a model is of a finished text. Higher is surer."""

    default_selector: ClassVar[str] = "last-10"
    """The name of the selector that it uses where the user names none."""

    asks: ClassVar[Literal["target", "judge"]] = "target"
    """Which model it reads: "target", the diffusion model, or "judge", the
    auto-regressive judge. A scorer that asks the judge gets the text in the judge's
    tokens and a selector of the whole response."""

    reads_end: ClassVar[bool] = True
    """Whether a response given as text is scored with the end token that follows it, as
    one that the model wrote; False for a likelihood of the response alone."""

    needs_writing: ClassVar[bool] = False
    """Whether it reads how the text was written, `sequence.own_writing()`: a given text
    has no such record and is refused before a pass."""

    needs_masks: ClassVar[bool] = False
    """Whether its score holds of masks alone, as a likelihood of mask diffusion does: a
    model of uniform noise is refused before a pass."""

    needs_uniform_noise: ClassVar[bool] = False
    """Whether its score holds of uniform noise alone: a model of masks is refused before a
    pass."""

    takes_weights: ClassVar[bool] = False
    """Whether its score is a mean that takes a selector's weights, as `Score.mean_of`
    does; any other scorer refuses such a selector."""

    @property
    def recorded(self) -> tuple[Confidence, ...]:
        """The kinds of confidence that it reads of the writing, besides tokens,
        log-probabilities and steps. Each costs a readout a step, and no pass.
        """
        return ()

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        """Return a plan of the score over the selected positions; -inf for none. Here:
        the sum of the terms; who has none implements this.
        """
        if type(self).terms is Scorer.terms:
            cls = type(self)
            raise PluginError(
                f"scorer {cls.__qualname__} of {cls.__module__} must implement score or terms",
                cls.__module__,
            )
        terms = yield from self.terms(sequence, selector)
        return (yield from terms.score())

    def terms(
        self,
        sequence: TokenSequence,  # noqa: ARG002
        selector: Selector,  # noqa: ARG002
    ) -> Plan[Terms]:
        """Return a plan of the Reads whose weighted log-probabilities sum to the score of
        the selected positions, with the same random masks. Raises InputError if the score
        is no such sum.
        """
        yield from ()
        cls = type(self)
        raise InputError(
            f"scorer {cls.__qualname__} of {cls.__module__} has no terms: its score is no "
            "weighted sum of log-probabilities; 'dise', 'shadow', 'interleaved' "
            "and 'mc' have some",
            "scorer",
        )
