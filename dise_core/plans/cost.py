"""The cost of a plan, counted in sequences sent through a forward pass."""

from dataclasses import dataclass
from typing import TypeVar

from dise_core.plans.plan import Plan
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
    try:
        reads = next(plan)
        while True:
            rows, before = distinct_rows(reads), nfe
            for row in rows:
                nfe += row.num_sequences
            try:
                readings = yield reads
            except Exception as error:
                computed += nfe - before
                reads = plan.throw(error)
            else:
                for row in rows:
                    share = readings[row.reads[0]].share + row.num_shadows / len(row.token_ids)
                    share *= row.num_sequences
                    computed, tokens = computed + share, tokens + round(share * len(row.token_ids))
                reused = reused or [reading.num_reused for reading in readings]
                for reading in readings:
                    is_exact &= reading.is_exact
                reads = plan.send(readings)
    except StopIteration as stop:
        return stop.value, Cost(nfe, computed, is_exact, tokens, min(reused, default=0))
    finally:
        plan.close()


def count_nfe(plan: Plan[T]) -> Plan[tuple[T, int]]:
    """Return a plan of a plan's result and its NFE, the sequences sent to a pass."""
    result, cost = yield from count_cost(plan)
    return result, cost.nfe
