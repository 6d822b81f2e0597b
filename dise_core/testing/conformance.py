"""The conformance checks of selectors, scorers and length controllers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from dise_core.arrays import Ids, Mask
from dise_core.cost import count_nfe
from dise_core.denoise import Denoiser
from dise_core.interfaces import LengthController, Scorer, Selector, UnmaskingPolicy, UnmaskingStep
from dise_core.model import MaskPredictor
from dise_core.noise import Noise
from dise_core.outputs import Generation, Score
from dise_core.params import SamplingParams
from dise_core.reading import Plan, Read, Reading, drive, gather
from dise_core.scoring import SequenceScorer, regenerate
from dise_core.sequence import BlockOrigin, SpecialTokens, TokenSequence
from dise_core.testing.promises import expect
from dise_core.testing.toy_model import SPECIAL, ToyPredictor


def check_selector(selector: Selector) -> None:
    """Check that the selector returns bool [N], the same each time, and leaves the text unchanged;
    for texts with and without a prompt and end tokens.
    """
    for text in _texts(SPECIAL):
        before = text.ids.copy()
        mask = selector.select(text)
        expect(
            mask.dtype == np.bool_ and mask.shape == (len(text),),
            f"select must return bool [{len(text)}], not {mask!r}",
        )
        expect(
            np.array_equal(mask, selector.select(text)),
            "select must return the same mask for the same text",
        )
        expect(np.array_equal(before, text.ids), "select must leave the text unchanged")


def check_scorer(
    scorer: Scorer, predictor: MaskPredictor | None = None, tolerance: float = 0.0
) -> None:
    """Check that the scorer gives a text the same score alone, again and beside other texts, and
    -inf if and only if no position is scored.

    predictor: the model that answers; None: toy models. tolerance: how far scores of one text may
    differ, in nats.
    """
    read: Callable[[Sequence[Read]], Sequence[Reading]] = (
        _read_both if predictor is None else predictor.read
    )
    info = ToyPredictor().info if predictor is None else predictor.info
    texts = list(_texts(info.special, info.block_origin))
    for text in texts:
        score, nfe = drive(count_nfe(scorer.score(text, _Everything())), read)
        _check_score(score, text)
        again = drive(scorer.score(text, _Everything()), read)
        expect(
            _is_close(score.value, again.value, tolerance),
            f"the same text must get the same score, not {score.value} and {again.value}",
        )
        crowd = drive(gather(*(scorer.score(each, _Everything()) for each in (*texts, text))), read)
        expect(
            _is_close(crowd[-1].value, score.value, tolerance),
            "a text must get the same score alone and beside others",
        )
        expect(score.num_positions == 0 or nfe > 0, "a score over some position must ask the model")
    nothing = drive(scorer.score(texts[0], _Nothing()), read)
    expect(nothing.value == -math.inf, f"no selected position must give -inf, not {nothing!r}")


def check_length_controller(
    controller: LengthController, predictor: MaskPredictor | None = None, tolerance: float = 0.0
) -> None:
    """Check that the controller keeps the prompt, leaves no mask, stays within the model's limit,
    repeats itself, and evaluates the text that it returns.

    predictor, tolerance: as in check_scorer.
    """
    scorer = SequenceScorer(_Regenerated(), _Everything())
    given = predictor
    for num_tokens, limit in ((1, 12), (6, 12), (9, 40)):
        predictor = given or ToyPredictor(max_length=limit)
        info = replace(predictor.info, max_length=limit)
        prompt = np.array([3, 1, 4])
        params = SamplingParams(max_tokens=num_tokens, block_length=4)
        denoiser = Denoiser(info, _Surest(), Noise(0), params)
        result, nfe = drive(
            count_nfe(controller.generate(prompt, denoiser, scorer)), predictor.read
        )
        _check_generation(result, prompt, limit, info.special)
        again = drive(scorer.evaluate(result.sequence), predictor.read)
        expect(
            _is_close(again.score.value, result.evaluation.score.value, tolerance),
            "the evaluation must be that of the text that is returned",
        )
        expect(
            sum(step.nfe for step in result.trace) <= nfe,
            f"the trace must not count more than the {nfe} passes made",
        )
        repeated = drive(controller.generate(prompt, denoiser, scorer), predictor.read)
        expect(
            np.array_equal(repeated.sequence.ids, result.sequence.ids),
            "the same request must give the same text",
        )


def _is_close(one: float, other: float, tolerance: float) -> bool:
    return one == other or abs(one - other) <= tolerance


def _check_score(score: Score, text: TokenSequence) -> None:
    expect(not math.isnan(score.value), "a score must not be NaN")
    expect(
        (score.value == -math.inf) == (score.num_positions == 0),
        f"-inf if and only if nothing is scored: {score!r}",
    )
    inside = score.num_positions == 0 or (
        score.positions.min() >= 0 and score.positions.max() < len(text)
    )
    expect(bool(inside), f"a score's positions must lie in the text: {score.positions!r}")
    expect(
        score.standard_error is None or score.standard_error >= 0,
        f"a standard error is at least 0: {score!r}",
    )


def _check_generation(result: Generation, prompt: Ids, limit: int, special: SpecialTokens) -> None:
    text = result.sequence
    expect(
        np.array_equal(text.prompt, prompt), f"the prompt must stay {prompt!r}, not {text.prompt!r}"
    )
    expect(not (text.ids == special.mask_id).any(), f"no mask may be left: {text.ids!r}")
    expect(len(text) <= limit, f"a text of {len(text)} tokens does not fit a model of {limit}")


def _texts(special: SpecialTokens, origin: BlockOrigin = "response") -> Iterator[TokenSequence]:
    """Yield texts with and without a prompt and end tokens, one with nothing but end tokens."""
    end = 9 if special.eos_id is None else special.eos_id
    for prompt, response in (
        ([1, 2, 3], [4, 5, 6, 7, 8, 9, end, end]),
        ([], [4, 5, 6]),
        ([1, 2, 3, 4, 5], [6]),
        ([1], [2, end, 3, 4]),
        ([1, 2], [end, end]),
    ):
        yield TokenSequence.of(prompt, response, special, 4, origin=origin)


def _read_both(reads: Sequence[Read]) -> list[Reading]:
    """Answer reads of the target and of a judge with two different toy models."""
    target, judge = ToyPredictor(seed=0), ToyPredictor(seed=1)
    return [(judge if read.predictor == "judge" else target).read([read])[0] for read in reads]


class _Everything(Selector):
    """Selects the whole response."""

    def select(self, sequence: TokenSequence) -> Mask:
        return sequence.mask_of(sequence.response_positions)


class _Nothing(Selector):
    """Selects no position."""

    def select(self, sequence: TokenSequence) -> Mask:
        return sequence.mask_of([])


class _Regenerated(Scorer):
    """The mean log-probability of the response's tokens given the whole text."""

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:  # noqa: ARG002
        if len(sequence.response) == 0:
            return Score.of_nothing()
        report = yield from regenerate(sequence)
        return Score.mean_of(report.logprobs, sequence.response_positions)


class _Surest(UnmaskingPolicy):
    """Commits the quota's most probable candidates."""

    def choose(self, step: UnmaskingStep) -> Ids:
        return np.argsort(-step.confidences, kind="stable")[: step.quota]
