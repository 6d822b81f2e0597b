"""How a conformance check names a broken promise, and what the checks of strategies run on."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from dise_core import (
    Floats,
    Generation,
    Ids,
    LogProbs,
    MaskPredictor,
    Plan,
    Score,
    TokenSequence,
    drive,
)
from dise_core.errors import ModelError, PlanError, PluginError
from dise_core.scoring.scorer import Scorer, Selector
from dise_core.scoring.sequence_scorer import SequenceScorer, WholeResponse, regenerate
from dise_core.writing.policy import UnmaskingPolicy, UnmaskingStep


class Regenerated(Scorer):
    """The mean log-probability of the response's tokens given the whole text."""

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:  # noqa: ARG002
        if len(sequence.response) == 0:
            return Score.empty()
        report = yield from regenerate(sequence)
        return Score.mean_of(report.logprobs, sequence.response_positions)


class Surest(UnmaskingPolicy):
    """Commits the quota's most probable candidates."""

    def choose(self, step: UnmaskingStep) -> Ids:
        return np.argsort(-step.confidences, kind="stable")[: step.quota]


SCORER = SequenceScorer(Regenerated(), WholeResponse())


def expect(condition: bool, promise: str) -> None:
    """Raise AssertionError with the promise unless the condition holds."""
    if not condition:
        raise AssertionError(promise)


def expect_close(value: float, expected: float, tolerance: float, promise: str) -> None:
    """Raise AssertionError with the promise unless both are equal, or that close."""
    expect(value == expected or abs(value - expected) <= tolerance, promise)


def gap_between(values: Floats | LogProbs, expected: Floats | LogProbs) -> float:
    """Return how far values [...] are from others at most: 0 where both are the same
    infinity, inf where one is NaN.
    """
    with np.errstate(invalid="ignore"):
        gaps = np.where(values == expected, 0, np.abs(values - expected))
    return float(np.nan_to_num(gaps, nan=np.inf).max(initial=0))


@contextmanager
def kept() -> Iterator[None]:
    """Raise AssertionError for what is refused where requests are answered, too."""
    try:
        yield
    except (PluginError, PlanError, ModelError) as error:
        raise AssertionError(str(error)) from error


def expect_repeated(
    generation: Generation,
    nfe: int,
    again: Plan[Generation],
    predictor: MaskPredictor,
    tolerance: float,
    promise: str,
) -> None:
    """Raise AssertionError unless SCORER evaluates the text so and the trace counts `nfe`
    passes at most; with the promise unless the plan of the same request writes the same
    text again.
    """
    evaluation = drive(SCORER.evaluate(generation.sequence), predictor.read)
    values = evaluation.score.value, generation.evaluation.score.value
    expect_close(*values, tolerance, "the evaluation must be that of the text that is returned")
    num_traced = sum(step.nfe for step in generation.trace)
    num_traced += sum(revision.nfe for revision in generation.revisions)
    expect(num_traced <= nfe, f"the trace must not count more than the {nfe} passes made")
    ids = drive(again, predictor.read).sequence.ids
    expect(np.array_equal(ids, generation.sequence.ids), promise)


def texts(model: MaskPredictor) -> Iterator[TokenSequence]:
    """Yield texts with and without a prompt, end tokens, other tokens and a suffix."""
    info, spell = model.info, model.tokenizer.spell
    end = 9 if info.special.eos_id is None else info.special.eos_id
    for prompt, response in (
        ([1, 2, 3], [4, 5, 6, 7, 8, 9, end, end]),
        ([], [4, 5, 6]),
        ([1, 2, 3, 4, 5], [6]),
        ([1], [2, end, 3, 4]),
        ([1, 2], [end, end]),
    ):
        text = TokenSequence.of(
            prompt, response, info.special, 4, info.max_length, info.block_origin, spell
        )
        yield text
    yield replace(text, ids=np.array([1, 2, 3, 4, 5]), suffix_length=2)
