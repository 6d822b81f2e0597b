"""Algorithm 1 on a scripted model, against traces written by hand from the paper's lines
1 to 20.
"""

from dataclasses import dataclass

import numpy as np
import pytest

from dise_core import LLM, SamplingParams, TokenSequence
from dise_core.scoring.sequence_scorer import SequenceScorer
from dise_core.testing import ToyPredictor
from dise_core.testing.toy_model import END, MASK
from dise_strategies.lengths.dise_flexible import DiSEFlexible
from dise_strategies.scorers.dise import DiSE
from dise_strategies.selectors.whole import ResponseText
from tests.scripted_model import PROMPT, ScriptedModel, generated

A, B, C, D, E = 3, 4, 5, 6, 7


@dataclass(frozen=True)
class Case:
    """A run: settings, what the model does, and what Algorithm 1 must make of it. After the first
    one a fill is as long as the tail: D tokens and one more.
    """

    settings: dict[str, int]
    fills: list[list[int]]
    scores: list[float]
    scored: list[list[int]]
    answer: list[int]
    stopped_by: str
    max_length: int = 40


CASES = {
    "stops by patience": Case(
        settings={"mask_size": 2, "patience": 2},
        fills=[[A, B, C, END], [D, D, D], [E, E, E, E]],
        scores=[-1.0, -1.5, -2.0],
        scored=[[A, B, C], [A, D, D, D], [A, E, E, E, E]],
        answer=[A, B, C],
        stopped_by="patience",
    ),
    "an improvement resets the count, and the best is returned, not the last": Case(
        settings={"mask_size": 1, "patience": 2},
        fills=[[A, B], [C, C], [D, D, D], [E, E, E, E], [A, A, A, A, A]],
        scores=[-1.0, -2.0, -0.5, -0.625, -0.75],
        scored=[[A, B], [A, C, C], [A, D, D, D], [A, E, E, E, E], [A, A, A, A, A, A]],
        answer=[A, D, D, D],
        stopped_by="patience",
    ),
    "runs to M_max": Case(
        settings={"mask_size": 1, "patience": 2, "max_iterations": 4},
        fills=[[A], [B, B], [C, C, C], [D, D, D, D]],
        scores=[-4.0, -3.0, -2.0, -1.0],
        scored=[[A], [B, B], [C, C, C], [D, D, D, D]],
        answer=[D, D, D, D],
        stopped_by="max_iterations",
    ),
    "all end tokens at first: nothing to score, the first extension is better": Case(
        settings={"mask_size": 20, "patience": 1},
        fills=[[END, END, END], [A], [B, B]],
        scores=[-3.0, -4.0],
        scored=[[A], [B, B]],
        answer=[A],
        stopped_by="patience",
    ),
    "a response shorter than D is masked whole, the prompt never": Case(
        settings={"mask_size": 20, "patience": 1},
        fills=[[A, B, END, END], [C, C, C]],
        scores=[-1.0, -1.0],
        scored=[[A, B], [C, C, C]],
        answer=[A, B],
        stopped_by="patience",
    ),
    "end tokens that come back stay in the text and count as its tokens": Case(
        settings={"mask_size": 1, "patience": 2},
        fills=[[A, B, END], [C, END], [D, D, END], [E, E, E, E]],
        scores=[-2.0, -1.0, -1.5, -1.625],
        scored=[[A, B], [A, C, END], [A, D, D, END], [A, E, E, E, E]],
        answer=[A, C, END],
        stopped_by="patience",
    ),
    "ends where one more token would not fit the model": Case(
        settings={"mask_size": 2, "patience": 4},
        fills=[[A, B, C], [D, D, D]],
        scores=[-1.0, -2.0],
        scored=[[A, B, C], [A, D, D, D]],
        answer=[A, B, C],
        stopped_by="context",
        max_length=6,
    ),
    "one iteration is fixed length without its end tokens": Case(
        settings={"max_iterations": 1},
        fills=[[A, END, B]],
        scores=[-1.0],
        scored=[[A, B]],
        answer=[A, B],
        stopped_by="max_iterations",
    ),
}


SCORER = SequenceScorer(DiSE(), ResponseText())


@pytest.mark.parametrize("name", CASES)
def test_algorithm_1_makes_the_trace_written_by_hand(name: str) -> None:
    case = CASES[name]
    model = ScriptedModel(case.scores, case.fills)
    controller, first = DiSEFlexible(**case.settings), len(case.fills[0])
    result, nfe = generated(
        controller, model.read, case.max_length, SCORER, max_tokens=first, tokens_per_step=99
    )
    assert model.scored == case.scored
    assert result.sequence.response.tolist() == case.answer
    trace = [(len(text), score, 2) for text, score in zip(case.scored, case.scores, strict=True)]
    if len(trace) < len(case.fills):
        trace = [(0, -np.inf, 1), *trace]  # a first text of end tokens alone
    expected = [(number, *step) for number, step in enumerate(trace, start=1)]
    assert [(s.iteration, s.num_tokens, s.score, s.nfe) for s in result.trace] == expected
    assert result.stopped_by == case.stopped_by
    assert nfe == sum(s.nfe for s in result.trace)


def test_a_tail_longer_than_a_block_is_written_in_blocks() -> None:
    toy = ToyPredictor()
    controller = DiSEFlexible(max_iterations=2, mask_size=6)
    settings = {"max_tokens": 7, "block_length": 4, "tokens_per_step": 99}
    generated(controller, toy.read, 40, SCORER, **settings)
    masks = [int((ids == MASK).sum()) for [ids, *_] in toy.batches if (ids == MASK).any()]
    length = len(toy.batches[-1][0]) - len(PROMPT) - 1
    tail = min(6, length) + 1
    assert masks == [7, 3, *range(tail, 0, -4)]


def test_the_output_of_the_library_shows_the_trace() -> None:
    [answer] = LLM(ToyPredictor()).generate(
        [PROMPT], SamplingParams(max_tokens=6, length="dise-flexible")
    )
    [output] = answer.outputs
    record = output.to_dict()["length"]
    assert record["controller"] == "dise-flexible"
    assert record["stopped_by"] == output.stopped_by
    assert [step["iteration"] for step in record["trace"]] == list(range(1, len(output.trace) + 1))
    assert sum(step["nfe"] for step in record["trace"]) == answer.usage.nfe
    assert output.score.value == max(
        step["score"] for step in record["trace"] if step["score"] is not None
    )
    assert output.finish_reason == ("stop" if output.stopped_by == "patience" else "length")


def test_sampled_extensions_draw_anew_in_each_iteration() -> None:
    """At a very high temperature a tail of 8 random letters comes out the same twice about once in
    10^8 runs.
    """
    controller = DiSEFlexible(max_iterations=3, patience=9, mask_size=8)
    texts: list[TokenSequence] = []

    class Watching(DiSE):
        def score(self, sequence, selector):  # type: ignore[no-untyped-def]
            texts.append(sequence)
            return (yield from super().score(sequence, selector))

    settings = {"max_tokens": 8, "tokens_per_step": 99, "temperature": 1e6}
    watching = SequenceScorer(Watching(), ResponseText())
    generated(controller, ToyPredictor().read, 40, watching, **settings)
    assert texts[1].response[:7].tolist() != texts[2].response[:7].tolist()
