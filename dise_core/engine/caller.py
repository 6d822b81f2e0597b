"""Those who submit plans: each gets its turns, and may have a budget."""

from collections.abc import Iterable
from contextvars import ContextVar
from threading import Lock

from dise_core.errors import InputError
from dise_core.plans.outcome import Budget
from dise_core.plans.rows import Row

CALLER_SALT: ContextVar[str] = ContextVar("CALLER_SALT", default="")
"""The salt of the callers that are made in a context. Not an argument, since a plugin's
route that forgot to hand it on would let its callers see what others asked.
"""


class Caller:
    """Whoever submits plans that share turns and a budget. is_alone: no other will ever
    come.
    cache_salt: stands before the salt of each of its Reads.
    """

    def __init__(self, budget: Budget | None = None, is_alone: bool = False) -> None:
        self.is_alone, self.cache_salt = is_alone, CALLER_SALT.get()
        self._budget = budget or Budget()
        self._is_limited = self._budget != Budget()
        self._num_passes = self._num_tokens = 0
        self._counting = Lock()  # plans of one caller start in threads of their own

    def spend(self, rows: Iterable[Row]) -> None:
        """Count rows that a plan asks for. Raises InputError beyond the budget."""
        if not self._is_limited:
            return
        with self._counting:
            for row in rows:
                self._num_passes += row.num_sequences
                self._num_tokens += row.num_tokens
        for spent, limit, unit in (
            (self._num_passes, self._budget.passes, "forward passes"),
            (self._num_tokens, self._budget.tokens, "tokens in forward passes"),
        ):
            if limit is not None and spent > limit:
                raise InputError(
                    f"the request takes more than the {limit} {unit} that one may take here; "
                    "ask for fewer or shorter answers, fewer steps or fewer samples"
                )
