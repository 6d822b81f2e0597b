"""The cost of a plan, counted in sequences sent through a forward pass."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from dise_core.plans.plan import Plan, answer_by
from dise_core.plans.reading import Read, Reading
from dise_core.plans.rows import distinct_rows

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a plan cost. nfe: sequences sent through a forward pass. computed: the same,
    each weighted by the share of its positions that was computed, shadows included.
    tokens: those that were. reused: the fewest tokens of a first Read's text that an
    earlier one had computed.
    is_exact: whether every answer is that of a full pass.
    """

    nfe: int = 0
    computed: float = 0.0
    is_exact: bool = True
    tokens: int = 0
    reused: int = 0


def count_cost(plan: Plan[T]) -> Plan[tuple[T, Cost]]:
    """Return a plan of its result and cost. A failed forward pass counts as computed."""
    nfe, computed, is_exact, tokens, reused = 0, 0.0, True, 0, list[int]()

    def answer(reads: Sequence[Read]) -> Plan[Sequence[Reading]]:
        nonlocal nfe, computed, is_exact, tokens, reused
        rows = distinct_rows(reads)
        num_sequences = sum(row.num_sequences for row in rows)
        nfe += num_sequences
        try:
            readings = yield reads
        except Exception:
            computed += num_sequences
            raise
        for row in rows:
            share = readings[row.reads[0]].share + row.num_shadows / len(row.token_ids)
            share *= row.num_sequences
            computed, tokens = computed + share, tokens + round(share * len(row.token_ids))
        reused = reused or [reading.num_reused for reading in readings]
        is_exact &= all(reading.is_exact for reading in readings)
        return readings

    result = yield from answer_by(plan, answer)
    return result, Cost(nfe, computed, is_exact, tokens, min(reused, default=0))


def count_nfe(plan: Plan[T]) -> Plan[tuple[T, int]]:
    """Return a plan of a plan's result and its NFE, the sequences sent to a pass."""
    result, cost = yield from count_cost(plan)
    return result, cost.nfe
