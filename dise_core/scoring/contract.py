"""What the strategies of third parties promise, checked where they are called. What they do
wrong is named with the plugin that is at fault.
"""

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from operator import methodcaller
from typing import Any, NoReturn, TypeVar

import numpy as np

from dise_core.arrays import Mask, Weights
from dise_core.errors import DiseError, InputError, PlanError, PluginError, error_line, shown
from dise_core.interrupts import is_leaving
from dise_core.plans.plan import Plan, Running
from dise_core.plans.reading import checked_reads
from dise_core.scoring.score import Score
from dise_core.scoring.scorer import Narrowing, Scorer, Selector
from dise_core.scoring.strategy import Strategy
from dise_core.sequence import TokenSequence, are_within

T = TypeVar("T")

OURS = ("dise_core", "dise_strategies")
"""The packages of the built-in strategies."""


def is_ours(strategy: Strategy) -> bool:
    """Return whether a strategy is built in."""
    return type(strategy).__module__.partition(".")[0] in OURS


def origin(role: str, strategy: Strategy) -> tuple[str, str]:
    """Return what errors call a strategy, and its plugin: the module of an object that no
    catalog made. role: "scorer", say.
    """
    cls = type(strategy)
    return strategy._origin or (f"{role} {cls.__qualname__} of {cls.__module__}", cls.__module__)


def blame(role: str, strategy: Strategy, error: BaseException) -> NoReturn:
    """Raise what a strategy raised, as a PlanError that names it if it is a third party's
    and the error none of ours.
    """
    is_told = is_ours(strategy) or isinstance(error, DiseError)
    if is_told or is_leaving(error, type(strategy).__module__):
        raise error
    name, plugin = origin(role, strategy)
    raise PlanError(f"{name}: {error_line(error):.500}", plugin) from error


def call(role: str, strategy: Strategy, method: Callable[..., T], *arguments: object) -> T:
    """Return what a strategy's method does. Raises what `blame` does."""
    try:
        return method(*arguments)
    except BaseException as error:
        blame(role, strategy, error)


def planned(
    role: str, strategy: Strategy, method: Callable[..., Plan[T]], *arguments: object
) -> Plan[T]:
    """Return the plan that a strategy's method makes. What a third party's raises, or
    yields in place of Reads, becomes a PlanError that names it.
    """
    if is_ours(strategy):
        return method(*arguments)
    return _watched(role, strategy, method, arguments)


def _watched(
    role: str, strategy: Strategy, method: Callable[..., Plan[T]], arguments: Sequence[object]
) -> Plan[T]:
    plan: object = call(role, strategy, method, *arguments)
    if not isinstance(plan, Generator):
        name, plugin = origin(role, strategy)
        raise PlanError(
            f"{name} must make a plan, a generator, not {type(plan).__name__}: "
            f"{shown(plan)}; write `[reading] = yield [Read(...)]`, or `yield []` if it "
            "reads nothing",
            plugin,
        )
    failure: BaseException | None = None
    step: Callable[[Any], Any] = next
    with closing(plan):
        running = Running[T](plan)
        while True:
            try:
                running.advance(step)
            except BaseException as error:
                if error is failure:  # of the model
                    raise
                blame(role, strategy, error)
            if running.is_done:
                return running.result
            name, plugin = origin(role, strategy)
            checked_reads(name, running.reads, plugin)
            try:
                step, failure = methodcaller("send", (yield running.reads)), None
            except Exception as error:
                step, failure = methodcaller("throw", error), error


class CheckedSelector(Narrowing):
    """Selects what another selector does, and raises PluginError for a bad mask, and for
    bad weights.
    """

    def select(self, sequence: TokenSequence) -> Mask:
        mask: object = call("selector", self.inner, self.inner.select, sequence)
        length = len(sequence)
        if not isinstance(mask, np.ndarray) or (mask.dtype, mask.shape) != (np.bool_, (length,)):
            raise broken("selector", self.inner, f"a mask, bool [{length}]", described(mask))
        if mask[sequence.response_end :].any():
            raise broken("selector", self.inner, "no position of what follows the response", "")
        return mask

    def weights(self, sequence: TokenSequence) -> Weights:
        weights = call("selector", self.inner, self.inner.weights, sequence)
        if weights is None:
            return None
        promise = f"weights, float [{len(sequence)}], or None"
        facts = getattr(weights, "shape", None), getattr(weights, "dtype", np.dtype(int)).kind
        if facts != ((len(sequence),), "f"):
            raise broken("selector", self.inner, promise, described(weights))
        is_positive = np.isfinite(weights) & (weights > 0)
        if not ((weights == 0) | is_positive & self.select(sequence)).all():
            promise = "finite weights of at least 0, and of 0 where its mask is False"
            raise broken("selector", self.inner, promise, described(weights))
        return weights


def check_weights(name: str, scorer: Scorer, selector: Selector) -> None:
    """Raise InputError for a selector with weights where the scorer takes none. name: the
    scorer's.
    """
    if selector.is_weighted and not scorer.takes_weights:
        raise InputError(
            f"scorer {name!r} is no mean over tokens, so it takes no weights, which this "
            "selector gives them: take another selector, or a scorer such as 'dise'",
            "selector",
        )


def scored(scorer: Scorer, text: TokenSequence, selector: Selector) -> Plan[Score]:
    """Return a plan of a scorer's score of a text. Raises what `planned` does, and
    PluginError for what is no score of the text.
    """
    plan = planned("scorer", scorer, scorer.score, text, selector)
    return checked_score("scorer", scorer, (yield from plan), len(text))


def checked_score(role: str, strategy: Strategy, score: object, length: int | None = None) -> Score:
    """Return the score of a text. role: of the strategy, "scorer" say. length: of the
    text, where it is known.
    """
    if not isinstance(score, Score):
        raise broken(role, strategy, "a Score", described(score))
    if not isinstance(score.value, int | float) or not score.value < math.inf:
        raise broken(role, strategy, "a value that is a finite number, or -inf", str(score.value))
    positions = score.positions
    if not isinstance(positions, np.ndarray) or positions.dtype.kind not in "iu":
        raise broken(role, strategy, "positions, int64", described(positions))
    if length is not None and not are_within(positions, length):
        raise broken(role, strategy, f"positions in 0..{length - 1}", described(positions))
    return score


def broken(role: str, strategy: Strategy, promise: str, answer: str) -> PluginError:
    """Return the error for a broken promise of a strategy. answer: what came instead."""
    name, plugin = origin(role, strategy)
    instead = f", not {answer}" if answer else ""
    return PluginError(f"{name} must return {promise}{instead}", plugin)


def described(value: object) -> str:
    """Return a value's type, and the value itself as far as it is short."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} {list(value.shape)}: {shown(value, 60)}"
    return f"{type(value).__name__}: {shown(value, 60)}"
