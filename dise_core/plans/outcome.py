"""What plans may cost, and how they end."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from dise_core.errors import DiseError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Budget:
    """What all plans of one caller may cost together; None is no limit.

    passes: forward passes of one sequence. tokens: the tokens in them.
    """

    passes: int | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """How a plan ended. index: in the caller's order; seconds: those that it took."""

    index: int
    result: T | None
    error: DiseError | None
    seconds: float

    def unwrap(self) -> T:
        """Return the result, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.result  # type: ignore[return-value]
