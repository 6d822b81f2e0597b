"""Reads of two streams and of shadows: what fits together, what shares a row, who answers them."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from dise_core import LLM, BlockCausal, Plan, Read, Reading, ScoringParams, TokenLogProbs
from dise_core.engine import Engine
from dise_core.errors import InputError, PlanError, TooLongError
from dise_core.models.attention import BIDIRECTIONAL, Attention
from dise_core.models.predictor import MaskPredictor
from dise_core.params.engine import EngineConfig
from dise_core.plans.reading import CacheHint, CacheSlot, Guidance
from dise_core.plans.rows import distinct_rows
from dise_core.testing import ToyPredictor, check_mask_predictor
from tests.recorded import Recorded

IDS = np.arange(6)


def read_of(*positions: int, ids: np.ndarray = IDS, **changes: object) -> Read:
    where = np.array(positions, np.int64)
    return Read(ids, where, TokenLogProbs(where), **changes)  # type: ignore[arg-type]


def asking(*reads: Read) -> Plan[list[float]]:
    readings = yield reads
    return [float(reading.logprobs[0]) for reading in readings]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"context_ids": np.arange(5)}, "a Read of 6 tokens has a context of 5"),
        ({"context_ids": [0] * 6}, "context_ids of a Read must be int64"),
        ({"context_ids": IDS * 1.0}, "context_ids of a Read must be int64"),
        ({"context_ids": IDS, "guidance": Guidance(IDS, 1.0)}, "context_ids of a Read must be"),
        ({"context_ids": IDS, "guidance": Guidance(IDS, 1.0, np.arange(7))}, "has a context of 7"),
        ({"context_ids": IDS, "shadow": True}, "shadows has no context_ids"),
        ({"shadow": True, "cache": CacheHint(CacheSlot())}, "cannot be cached"),
        ({"context_ids": IDS[::-1], "cache": CacheHint(CacheSlot())}, "cannot be cached"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        read_of(0, **changes)


def test_a_context_makes_another_row_and_a_shadow_does_not() -> None:
    reads = [
        read_of(0),
        read_of(3, 4, shadow=True),
        read_of(1, context_ids=IDS),
        read_of(4, 5, 4, shadow=True),
        read_of(2, context_ids=IDS + 1),
        read_of(3, context_ids=IDS.copy()),
        read_of(3, context_ids=IDS, guidance=Guidance(IDS, 1.0, IDS)),
    ]
    rows = distinct_rows(reads)
    assert [row.reads for row in rows] == [(0, 1, 3), (2, 5), (4,), (6,)]
    assert [row.num_tokens for row in rows] == [6 + 3, 12, 12, 24]
    assert [row.num_sequences for row in rows] == [1, 1, 1, 2]


class Plain(ToyPredictor):
    """A predictor that answers plain Reads only, as those of third parties do."""

    abilities = MaskPredictor.abilities


class Deaf(ToyPredictor):
    """Reads two streams by its own account, and ignores the second."""

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        return super().read([replace(read, context_ids=None) for read in reads])


def test_the_kit_finds_a_predictor_that_ignores_contexts() -> None:
    check_mask_predictor(ToyPredictor(attention=BlockCausal(4)))
    check_mask_predictor(Deaf())
    with pytest.raises(AssertionError, match="must be read after the finished ones"):
        check_mask_predictor(Deaf(attention=BlockCausal(4)))


@pytest.mark.parametrize(
    ("attention", "scorer", "named"),
    [
        (BlockCausal(4), "interleaved", "two-stream"),
        (BlockCausal(4), "mc", "two-stream"),
        (BlockCausal(4), "shadow", "shadow"),
        (BIDIRECTIONAL, "shadow", "shadow"),
    ],
)
def test_a_predictor_that_cannot_is_not_asked(
    attention: Attention, scorer: str, named: str
) -> None:
    toy = Plain(attention=attention)
    with pytest.raises(InputError, match=f"'toy' cannot read .*{named}.*'?dise'?") as refused:
        LLM(toy).score(["ab"], ["cdef"], ScoringParams(scorer=scorer, logprobs=None))
    assert refused.value.parameter == "scorer"
    assert toy.batches == []


@pytest.mark.parametrize("scorer", ["interleaved", "mc"])
def test_full_attention_runs_the_rows_that_it_always_ran(scorer: str) -> None:
    """A text of max_batch_tokens still fits, and no predictor hears of a context."""
    toy = Plain()
    toy.read = seen = Recorded(toy.read)  # type: ignore[method-assign, assignment]
    settings = {} if scorer == "interleaved" else {"num_samples": 4}
    params = ScoringParams(scorer=scorer, scorer_settings=settings)
    llm = LLM(toy, max_batch_tokens=7, max_num_seqs=1)
    [answer] = llm.score(["ab"], ["cdef"], params)
    assert answer.outputs[0].score.num_positions
    assert seen.reads
    assert all(read.context_ids is None for read in seen.reads)


def test_two_streams_take_the_room_of_both() -> None:
    toy = ToyPredictor(attention=BlockCausal(4))
    params = ScoringParams(scorer="interleaved")
    with pytest.raises(TooLongError, match="takes 16 tokens of a batch"):
        LLM(toy, max_batch_tokens=15).score(["ab"], ["cdef"], params)
    assert LLM(toy, max_batch_tokens=16).score(["ab"], ["cdef"], params)


@pytest.mark.parametrize(
    "changes",
    [{"context_ids": IDS + 7}, {"context_ids": IDS, "guidance": Guidance(IDS, 1.0, IDS + 7)}],
)
def test_a_bad_id_in_a_context_fails_its_request(changes: dict[str, object]) -> None:
    engine = Engine({"target": ToyPredictor(attention=BlockCausal(4))}, EngineConfig())
    bad, good = engine.run([asking(read_of(0, **changes)), asking(read_of(0))])
    assert "token id 12 at position 5 is outside the vocabulary" in str(bad.error)
    assert good.error is None
