"""The conformance checks of strategies."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from dise_core import Constraint, Denoiser, Generation, Ids, InputError, Noise, Plan, Reviser, Score
from dise_core.constraints.building import Source, build
from dise_core.history import Writing
from dise_core.models.attention import BlockCausal
from dise_core.models.predictor import MaskPredictor
from dise_core.params.requests import SamplingParams
from dise_core.plans.cost import count_nfe
from dise_core.plans.plan import drive, gather
from dise_core.plans.reading import Read, Reading
from dise_core.plans.readouts import Confidence, TokenLogProbs
from dise_core.scoring.contract import CheckedSelector, planned, scored
from dise_core.scoring.scorer import Scorer, Selector, Union
from dise_core.scoring.sequence_scorer import WholeResponse
from dise_core.sequence import TokenSequence
from dise_core.testing.promises import (
    SCORER,
    Surest,
    expect,
    expect_close,
    expect_repeated,
    kept,
    texts,
)
from dise_core.testing.toy_model import ToyPredictor
from dise_core.writing.contract import checked_revision, chosen, edited
from dise_core.writing.length import LengthController
from dise_core.writing.policy import Drafts, RenoisingPolicy, UnmaskingPolicy, UnmaskingStep
from dise_core.writing.writer import Writer


@kept()
def check_selector(selector: Selector) -> None:
    """Check that the selector returns the same bool [N] twice, and changes no text, and
    that its weights, if any, are weights.
    """
    for text in texts(ToyPredictor()):
        before = text.ids.copy()
        CheckedSelector(inner=selector).weights(text)
        mask, again = (CheckedSelector(inner=selector).select(text) for _ in range(2))
        expect(np.array_equal(mask, again), "select must return the same mask for the same text")
        expect(np.array_equal(before, text.ids), "select must leave the text unchanged")


@kept()
def check_scorer(
    scorer: Scorer, predictor: MaskPredictor | None = None, tolerance: float = 0.0
) -> None:
    """Check that the scorer gives a text the same score alone, again and beside other
    texts, and -inf if and only if no position is scored; and that a mean of the tokens'
    log-probabilities is that of the positions that it tells.

    predictor: the model that answers; None: toy models. tolerance: how far scores of one
    text may differ, in nats.
    """
    read: Callable[[Sequence[Read]], Sequence[Reading]] = (
        _read_both if predictor is None else predictor.read
    )
    everything = WholeResponse()
    several = list(texts(predictor or ToyPredictor()))
    if scorer.needs_writing:
        several = [_written(text, scorer.recorded) for text in several]

    def score_of(text: TokenSequence, selector: Selector = everything) -> Plan[Score]:
        return scored(scorer, text, selector)

    for text in several:
        score, nfe = drive(count_nfe(score_of(text)), read)
        _check_score(score)
        again = drive(score_of(text), read).value
        same = f"the same text must get the same score, not {score.value} and {again}"
        expect_close(score.value, again, tolerance, same)
        divides = scorer.needs_uniform_noise or text.special.is_drawn
        if not divides:  # what it reads by what a visible token adds
            _check_positions(score, score_of(text), read, tolerance)
        crowd = drive(gather(*(score_of(one) for one in (*several, text))), read)
        alone = "a text must get the same score alone and beside others"
        expect_close(crowd[-1].value, score.value, tolerance, alone)
        is_told = score.num_positions == 0 or scorer.needs_writing
        expect(is_told or nfe > 0, "a score over some position must ask the model")
    nothing = drive(score_of(several[0], Union(parts=())), read)
    expect(nothing.value == -math.inf, f"no selected position must give -inf, not {nothing!r}")


@kept()
def check_length_controller(
    controller: LengthController, predictor: MaskPredictor | None = None, tolerance: float = 0.0
) -> None:
    """Check that the controller keeps the prompt, leaves no mask, stays within the
    model's limit and its own `longest`, repeats itself, and evaluates the text that it
    returns. The others: as in check_scorer.
    """
    prompt = np.array([3, 1, 4])
    for num_tokens, limit in ((1, 12), (6, 12), (9, 40)):
        model = predictor or ToyPredictor(max_length=limit)
        params = SamplingParams(max_tokens=num_tokens, block_length=4)
        denoiser = Denoiser(replace(model.info, max_length=limit), Surest(), Noise(0), params)
        write = partial(Writer(controller).write, prompt, denoiser, SCORER)
        result, nfe = drive(count_nfe(write()), model.read)
        length = len(result.sequence)
        expect(length <= limit, f"a text of {length} tokens does not fit a model of {limit}")
        same = "the same request must give the same text"
        expect_repeated(result, nfe, write(), model, tolerance, same)
        length, longest = len(result.sequence.response), controller.longest(num_tokens)
        expect(length <= longest, f"a response of {length} is above longest(), {longest}")


def check_constraint(constraint: Constraint) -> None:
    """Check that the constraint has an expression, the same each time, that compiles."""
    expression = constraint.expression()
    expect(isinstance(expression, str), f"an expression is a text, not {expression!r:.80}")
    expect(expression == constraint.expression(), "the expression must stay the same")
    try:
        build(Source.of(constraint))
    except InputError as error:
        raise AssertionError(f"the expression {expression!r:.80} must compile: {error}") from error


@kept()
def check_reviser(
    reviser: Reviser, predictor: MaskPredictor | None = None, tolerance: float = 0.0
) -> None:
    """Check that the reviser returns a text that fits, tells of each change, evaluates
    the text that it returns, leaves the one that it was given as it was, and repeats
    itself. The others: as in check_scorer; toy models are of full and of block-causal
    attention.
    """
    toys = [ToyPredictor(), ToyPredictor(attention=BlockCausal(4))]
    for model in toys if predictor is None else [predictor]:
        first, *_ = responses = list(texts(model))
        for text in (*responses, replace(first, ids=first.prompt)):
            _check_revised(reviser, model, text, tolerance)


def _check_revised(
    reviser: Reviser, predictor: MaskPredictor, text: TokenSequence, tolerance: float
) -> None:
    before, max_tokens = text.ids.copy(), max(len(text.response), 1)
    generation = Generation(text, drive(SCORER.evaluate(text), predictor.read))
    params = SamplingParams(max_tokens=max_tokens, block_length=4, temperature=1.0)
    denoiser = Denoiser(predictor.info, Surest(), Noise(0), params, is_revised=True)
    request = "reviser", reviser, reviser.revise, generation, denoiser, SCORER
    result, nfe = drive(count_nfe(planned(*request)), predictor.read)
    expect(np.array_equal(before, text.ids), "revise must leave the given text unchanged")
    checked_revision(reviser, result, text, predictor.info, max_tokens)
    same = "the same response must be revised the same"
    expect_repeated(result, nfe, planned(*request), predictor, tolerance, same)
    positions = [token.position for revision in result.revisions for token in revision.tokens]
    is_inside = all(0 <= position < len(text.response) for position in positions)
    expect(is_inside, f"a revised token must be one of the given response: {positions}")


@kept()
def check_unmasking_policy(policy: UnmaskingPolicy) -> None:
    """Check that the policy chooses distinct indices, within the quota if it uses one,
    that it edits none but the drafts that it gets, and that denoising with it fills every
    mask.
    """
    random = np.random.default_rng(0)
    for num_masked, quota in [(n, quota) for n in (1, 2, 7) for quota in range(1, n + 1)]:
        positions, confidences = np.arange(num_masked) * 2, random.random(num_masked)
        step = UnmaskingStep(positions, confidences, quota, quota / num_masked, Noise(quota))
        before = confidences.copy()
        indices = chosen(policy, step)
        within = f"a policy that uses the quota commits 1..{quota}, not {len(indices)}"
        expect(not policy.uses_quota or 1 <= len(indices) <= quota, within)
        expect(np.array_equal(before, step.confidences), "choose must leave the step unchanged")
    if isinstance(policy, RenoisingPolicy):
        _check_renoising(policy)
    for num_drafts in (0, 1, 5) if policy.edits else ():
        positions, nothing = np.arange(num_drafts), np.zeros(0, np.int64)
        drafts = Drafts(positions, positions, positions[::-1].copy(), random.random(num_drafts))
        step = UnmaskingStep(nothing, np.zeros(0), 0, 1.0, Noise(0), 0, drafts)
        edited(policy, step, drafts)
        expect(policy.num_post_steps >= 0, f"num_post_steps is {policy.num_post_steps}")
    toy = ToyPredictor()
    for settings in ({"tokens_per_step": 2}, {"steps": 4}):
        params = SamplingParams(max_tokens=9, block_length=5).model_copy(update=settings)
        for eps in (None, 1e-3):
            timed = policy.model_copy(update={"eps": eps})
            denoiser = Denoiser(toy.info, timed, Noise(0), params)
            text = drive(denoiser.write(np.array([1, 2]), 9), toy.read)
            expect(not (text.ids == denoiser.mask_id).any(), "denoising must fill every mask")


def _check_renoising(policy: RenoisingPolicy) -> None:
    expect(policy.num_steps >= 1, f"num_steps is {policy.num_steps}")
    for index in range(policy.num_steps):
        temperature = policy.temperature(index)
        expect(temperature > 0, f"temperature({index}) is {temperature}, and must be above 0")
    step = UnmaskingStep(np.arange(3), np.zeros(3), 3, 1.0, Noise(0), num_stable=1)
    is_finished = policy.is_finished(step)
    expect(isinstance(is_finished, bool), f"is_finished must return a bool, not {is_finished!r}")


def _written(text: TokenSequence, recorded: Sequence[Confidence]) -> TokenSequence:
    writing = Writing.of(text.ids)
    for step, position in enumerate(text.response_positions[:, None]):
        writing.see(position, {kind: np.array([-0.1 * step]) for kind in recorded})
        writing.commit(step, position, text.ids[position], np.array([-0.1 * step], np.float32))
    return replace(text, writing=writing)


def _check_score(score: Score) -> None:
    is_empty = score.num_positions == 0
    iff = f"-inf if and only if nothing is scored: {score!r}"
    expect((score.value == -math.inf) == is_empty, iff)
    is_error = score.standard_error is None or score.standard_error >= 0
    expect(is_error, f"a standard error is at least 0: {score!r}")


def _check_positions(
    score: Score,
    plan: Plan[Score],
    read: Callable[[Sequence[Read]], Sequence[Reading]],
    tolerance: float,
) -> None:
    """Raise AssertionError for a mean over other positions than it tells: all tokens'
    log-probabilities are read lower, each by its position, and so must the mean be.
    """
    others: list[Read] = []
    positions: list[Ids] = []

    def read_lower(reads: Sequence[Read]) -> list[Reading]:
        others.extend(each for each in reads if not isinstance(each.readout, TokenLogProbs))
        positions.extend(each.positions for each in reads)
        pairs = zip(reads, read(reads), strict=True)
        return [
            reading if others else replace(reading, logprobs=reading.logprobs - each.positions)
            for each, reading in pairs
        ]

    lower = drive(plan, read_lower)
    if positions and not others and score.is_mean and score.weights is None:
        promise = "a mean must be that of the log-probabilities at the positions that it tells"
        fall = float(np.mean(score.positions))
        expect_close(score.value - lower.value, fall, tolerance + 1e-3, promise)


def _read_both(reads: Sequence[Read]) -> list[Reading]:
    models = {"target": ToyPredictor(seed=0), "judge": ToyPredictor(seed=1)}
    return [models[read.predictor].read([read])[0] for read in reads]
