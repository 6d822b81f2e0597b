"""Plans: how they compose, and what they cost."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from dise_core import Candidates, Plan, Read, Reading, TokenLogProbs, TopLogProbs, drive, gather
from dise_core.errors import PlanError
from dise_core.plans.cost import Cost, count_cost, count_nfe
from dise_core.plans.reading import Guidance
from dise_core.plans.readouts import Readout
from dise_core.plans.rows import distinct_rows


def read_of(*ids: int, guidance: Guidance | None = None) -> Read:
    return Read(np.array(ids), np.array([0]), TokenLogProbs(np.array([0])), guidance=guidance)


def echo(reads: Sequence[Read]) -> list[Reading]:
    return [Reading(read.token_ids, -read.token_ids.astype(np.float32)) for read in reads]


def ask(*rounds: Sequence[Read]) -> Plan[list[list[int]]]:
    heard = []
    for reads in rounds:
        readings = yield reads
        heard.append([int(reading.token_ids[0]) for reading in readings])
    return heard


def test_drive_hands_each_answer_to_the_plan_that_asked() -> None:
    assert drive(ask([read_of(1), read_of(2)], [read_of(3)]), echo) == [[1, 2], [3]]


def test_gather_merges_what_is_asked_at_the_same_time() -> None:
    batches: list[list[int]] = []

    def record(reads: Sequence[Read]) -> list[Reading]:
        batches.append([int(read.token_ids[0]) for read in reads])
        return echo(reads)

    short, long, none = ask([read_of(1)]), ask([read_of(2), read_of(3)], [read_of(4)]), ask()
    assert drive(gather(short, long, none), record) == [[[1]], [[2, 3], [4]], []]
    assert batches == [[1, 2, 3], [4]]
    assert drive(gather(), echo) == []


def test_gather_closes_the_others_when_one_plan_raises() -> None:
    closed = []

    def patient() -> Plan[None]:
        try:
            yield [read_of(1)]
            yield [read_of(1)]
        finally:
            closed.append(True)

    def failing() -> Plan[None]:
        yield [read_of(2)]
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        drive(gather(patient(), failing()), echo)
    assert closed == [True]


def test_reads_of_one_text_share_a_row_unless_the_guidance_or_predictor_is_another() -> None:
    plain, other = read_of(1), Read(np.array([1]), np.array([0]), TopLogProbs(1), predictor="judge")
    guided = read_of(1, guidance=Guidance(np.array([2]), 1.0))
    rows = distinct_rows([plain, other, guided, read_of(1)])
    assert [row.reads for row in rows] == [(0, 3), (1,), (2,)]
    assert [row.num_sequences for row in rows] == [1, 1, 2]
    assert [row.num_tokens for row in rows] == [1, 1, 2]


def test_nfe_counts_sequences_not_reads() -> None:
    guided = read_of(1, guidance=Guidance(np.array([2]), 1.0))
    plan = count_nfe(ask([read_of(1), read_of(1), read_of(2)], [guided]))
    result, nfe = drive(plan, echo)
    assert result == [[1, 1, 2], [1]]
    assert nfe == 4


@pytest.mark.parametrize(
    ("shares", "is_exact", "expected"),
    [
        ([1.0, 1.0], [True, True], Cost(4, 4.0, True, tokens=4)),
        # cached, and yet as a whole pass
        ([0.5, 0.25], [True, True], Cost(4, 2.75, True, tokens=2)),
        ([0.5, 0.5], [True, False], Cost(4, 3.0, False, tokens=2)),
        ([1.0, 1.0], [False, True], Cost(4, 4.0, False, tokens=4)),
    ],
)
def test_what_was_computed_and_what_is_exact_are_two_things(
    shares: list[float], is_exact: list[bool], expected: Cost
) -> None:
    """Two rounds: one text and a guided one, which counts twice, then the first text again."""
    kinds = zip(shares, is_exact, strict=True)

    def answer(reads: Sequence[Read]) -> list[Reading]:
        share, exact = next(kinds)
        plain = [replace(reading, share=share, is_exact=exact) for reading in echo(reads)]
        return [plain[0], *echo(reads)[1:]]

    guided = read_of(1, guidance=Guidance(np.array([2]), 1.0))
    _, cost = drive(count_cost(ask([read_of(1), guided], [read_of(1)])), answer)
    assert cost == expected


FIVE = np.array([5])


@pytest.mark.parametrize(
    ("positions", "readout", "problem"),
    [
        ([-1], TopLogProbs(1), "positions outside 0..2"),
        ([3], TopLogProbs(1), "positions outside 0..2"),
        ([0, 1], TokenLogProbs(FIVE), "2 positions but 1 targets"),
        ([0, 1], TopLogProbs(1, targets=FIVE), "2 positions but 1 targets"),
        ([0], TopLogProbs(1, targets=FIVE / 2), r"targets of a Read must be int64 \[N\]"),
    ],
)
def test_a_question_whose_parts_do_not_fit_is_refused(
    positions: list[int], readout: Readout, problem: str
) -> None:
    with pytest.raises(PlanError, match=problem):
        Read(np.arange(3), np.array(positions), readout)


def test_guidance_of_another_length_and_draws_without_noise_are_refused() -> None:
    with pytest.raises(PlanError, match="a Read of 2 tokens is guided by one of 3"):
        read_of(1, 2, guidance=Guidance(np.arange(3), 1.0))
    with pytest.raises(PlanError, match="need noise"):
        Candidates(temperature=0.5)
