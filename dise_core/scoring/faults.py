"""What the code of third parties' strategies does wrong, told with their names."""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from operator import methodcaller
from typing import Any, NoReturn, TypeVar

from dise_core.errors import DiseError, PlanError, error_line, shown
from dise_core.interrupts import is_leaving
from dise_core.plans.plan import Plan, Running
from dise_core.plans.reading import Read
from dise_core.scoring.strategy import Strategy

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
            _check_reads(role, strategy, running.reads)
            try:
                step, failure = methodcaller("send", (yield running.reads)), None
            except Exception as error:
                step, failure = methodcaller("throw", error), error


def _check_reads(role: str, strategy: Strategy, reads: object) -> None:
    if not isinstance(reads, Sequence) or not all(isinstance(read, Read) for read in reads):
        name, plugin = origin(role, strategy)
        raise PlanError(
            f"{name} must yield a list of Reads, as in `yield [Read(...)]`, not "
            f"{type(reads).__name__}: {shown(reads)}",
            plugin,
        )
