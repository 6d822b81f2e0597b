"""One check per interface of what a strategy or an adapter must guarantee. A check raises
AssertionError, which names the promise that is broken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from dise_core.arrays import Ids, Mask
from dise_core.cost import count_nfe
from dise_core.denoise import Denoiser
from dise_core.interfaces import (
    Drafts,
    LengthController,
    Scorer,
    Selector,
    UnmaskingPolicy,
    UnmaskingStep,
)
from dise_core.model import MaskPredictor
from dise_core.noise import Noise
from dise_core.outputs import Generation, Score
from dise_core.params import SamplingParams
from dise_core.reading import (
    Candidates,
    Distribution,
    Plan,
    Read,
    Reading,
    TokenLogProbs,
    TopLogProbs,
    drive,
    gather,
)
from dise_core.scoring import SequenceScorer, regenerate
from dise_core.sequence import BlockOrigin, SpecialTokens, TokenSequence
from dise_core.testing.streams import check_two_streams
from dise_core.testing.toy_model import SPECIAL, ToyPredictor

STRANGE_NAMES = (
    "of-nobody",
    "Of Nobody (v2)?",
    "./of-nobody",
    "~of-nobody/model",
    "of-nobody/some-model",
    "ftp://of-nobody.invalid/some-model",
)
"""Names that belong to no model."""


def check_selector(selector: Selector) -> None:
    """Check that the selector returns bool [N], the same each time, and leaves the text unchanged;
    for texts with and without a prompt and end tokens.
    """
    for text in _texts(SPECIAL):
        before = text.ids.copy()
        mask = selector.select(text)
        _expect(
            mask.dtype == np.bool_ and mask.shape == (len(text),),
            f"select must return bool [{len(text)}], not {mask!r}",
        )
        _expect(
            np.array_equal(mask, selector.select(text)),
            "select must return the same mask for the same text",
        )
        _expect(np.array_equal(before, text.ids), "select must leave the text unchanged")


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
        _expect(
            _is_close(score.value, again.value, tolerance),
            f"the same text must get the same score, not {score.value} and {again.value}",
        )
        crowd = drive(gather(*(scorer.score(each, _Everything()) for each in (*texts, text))), read)
        _expect(
            _is_close(crowd[-1].value, score.value, tolerance),
            "a text must get the same score alone and beside others",
        )
        _expect(
            score.num_positions == 0 or nfe > 0, "a score over some position must ask the model"
        )
    nothing = drive(scorer.score(texts[0], _Nothing()), read)
    _expect(nothing.value == -math.inf, f"no selected position must give -inf, not {nothing!r}")


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
        _expect(
            _is_close(again.score.value, result.evaluation.score.value, tolerance),
            "the evaluation must be that of the text that is returned",
        )
        _expect(
            sum(step.nfe for step in result.trace) <= nfe,
            f"the trace must not count more than the {nfe} passes made",
        )
        repeated = drive(controller.generate(prompt, denoiser, scorer), predictor.read)
        _expect(
            np.array_equal(repeated.sequence.ids, result.sequence.ids),
            "the same request must give the same text",
        )


def check_unmasking_policy(policy: UnmaskingPolicy) -> None:
    """Check that the policy chooses distinct indices, within the quota if it uses one, that it
    edits none but the drafts that it gets, and that denoising with it fills every mask.
    """
    random = np.random.default_rng(0)
    for num_masked in (1, 2, 7):
        for quota in range(1, num_masked + 1):
            confidences = random.random(num_masked)
            step = UnmaskingStep(
                np.arange(num_masked) * 2, confidences, quota, quota / num_masked, Noise(quota)
            )
            chosen = policy.choose(step)
            _expect(
                np.issubdtype(chosen.dtype, np.integer),
                f"choose must return integers, not {chosen!r}",
            )
            _expect(
                len(set(chosen.tolist())) == len(chosen), f"each index at most once, not {chosen!r}"
            )
            _expect(
                all(0 <= index < num_masked for index in chosen),
                f"indices must be below {num_masked}: {chosen!r}",
            )
            if policy.uses_quota:
                _expect(
                    1 <= len(chosen) <= quota,
                    f"a policy that uses the quota commits 1..{quota}, not {len(chosen)}",
                )
            _expect(
                np.array_equal(confidences, step.confidences),
                "choose must leave the step unchanged",
            )
    for num_drafts in (0, 1, 5) if policy.edits else ():
        _check_edits(policy, num_drafts, random)
    toy = ToyPredictor()
    for settings in ({"tokens_per_step": 2}, {"steps": 4}, {"steps": 4, "eps": 1e-3}):
        params = SamplingParams(max_tokens=9, block_length=5).model_copy(update=settings)
        text = drive(
            Denoiser(toy.info, policy, Noise(0), params).write(np.array([1, 2]), 9), toy.read
        )
        _expect(not (text.ids == SPECIAL.mask_id).any(), "denoising must fill every mask")


def _check_edits(policy: UnmaskingPolicy, num_drafts: int, random: np.random.Generator) -> None:
    """Check what a policy edits where no mask is left."""
    positions, nothing = np.arange(num_drafts), np.zeros(0, np.int64)
    drafts = Drafts(positions, positions, positions[::-1].copy(), random.random(num_drafts))
    edited = policy.edit(UnmaskingStep(nothing, np.zeros(0), 0, 1.0, Noise(0), 0, drafts))
    _expect(
        np.issubdtype(edited.dtype, np.integer)
        and len(set(edited.tolist())) == len(edited)
        and all(0 <= index < num_drafts for index in edited),
        f"edit must return distinct indices below {num_drafts}, not {edited!r}",
    )
    _expect(policy.num_post_steps >= 0, f"num_post_steps is {policy.num_post_steps}")


def check_mask_predictor(predictor: MaskPredictor, tolerance: float = 1e-4) -> None:
    """Check that the predictor's readouts agree with each other, are the same alone as in a batch
    of texts of different lengths, and heed a context if it reads two streams.

    tolerance: how far log-probabilities of one text may differ, in nats.
    """
    _expect(
        all(0 <= i < predictor.info.vocab_size for i in predictor.info.special.eos_ids),
        "end tokens must be in the vocabulary",
    )
    texts = _texts_of(predictor)
    reads = [read for ids in texts for read in _questions(ids, predictor)]
    together = predictor.read(reads)
    _expect(
        len(together) == len(reads), f"read must answer all {len(reads)} reads, not {len(together)}"
    )
    for read, reading in zip(reads, together, strict=True):
        [alone] = predictor.read([read])
        _expect(
            np.array_equal(alone.token_ids, reading.token_ids),
            "a read must get the same tokens alone and in a batch",
        )
        difference = np.abs(alone.logprobs - reading.logprobs).max(initial=0)
        _expect(
            difference <= tolerance,
            f"log-probabilities alone and in a batch differ by {difference}",
        )
        _expect(
            bool((reading.logprobs <= tolerance).all()), "log-probabilities must not be above 0"
        )
    for start in range(0, len(reads), 5):
        _check_readouts(reads[start : start + 5], together[start : start + 5], tolerance)
    check_two_streams(predictor, texts, tolerance)


def check_claims(
    adapter: type[MaskPredictor], claimed: Sequence[str], not_claimed: Sequence[str] = ()
) -> None:
    """Check that the adapter claims its own models, and returns False for others without raising.

    claimed: names, folders or hub ids of models that it loads. not_claimed: those of other
    families. Tried besides: nonsense names, a hub id, paths that do not exist, and folders that are
    empty or hold a broken or unknown config.json. An adapter that asks the hub asks for that id
    too: set HF_HUB_OFFLINE=1 to keep tests off the network.
    """
    for model in claimed:
        _expect(_claim(adapter, model), f"claims({model!r}) must be True: the model is its own")
    with TemporaryDirectory() as folder:
        for model in (*not_claimed, *STRANGE_NAMES, *_strange_folders(Path(folder))):
            _expect(
                not _claim(adapter, model),
                f"claims({model!r}) must be False: the model is not its own",
            )


def _claim(adapter: type[MaskPredictor], model: str) -> bool:
    try:
        is_claimed = adapter.claims(model)
    except Exception as error:
        raise AssertionError(
            f"claims({model!r}) must not raise, whatever the name: {error!r}"
        ) from error
    _expect(
        isinstance(is_claimed, bool), f"claims({model!r}) must return a bool, not {is_claimed!r}"
    )
    return is_claimed


def _strange_folders(parent: Path) -> Iterator[str]:
    """Yield folders that no adapter may claim."""
    yield str(parent / "nowhere")
    for name, config in (
        ("empty", None),
        ("broken", "{"),
        ("nulls", '{"model_type": null, "architectures": null}'),
        ("stranger", '{"model_type": "of-nobody", "architectures": ["OfNobodyModel"]}'),
    ):
        (parent / name).mkdir()
        if config is not None:
            (parent / name / "config.json").write_text(config, encoding="utf-8")
        yield str(parent / name)


def _is_close(one: float, other: float, tolerance: float) -> bool:
    return one == other or abs(one - other) <= tolerance


def _check_score(score: Score, text: TokenSequence) -> None:
    _expect(not math.isnan(score.value), "a score must not be NaN")
    _expect(
        (score.value == -math.inf) == (score.num_positions == 0),
        f"-inf if and only if nothing is scored: {score!r}",
    )
    inside = score.num_positions == 0 or (
        score.positions.min() >= 0 and score.positions.max() < len(text)
    )
    _expect(bool(inside), f"a score's positions must lie in the text: {score.positions!r}")
    _expect(
        score.standard_error is None or score.standard_error >= 0,
        f"a standard error is at least 0: {score!r}",
    )


def _check_generation(result: Generation, prompt: Ids, limit: int, special: SpecialTokens) -> None:
    text = result.sequence
    _expect(
        np.array_equal(text.prompt, prompt), f"the prompt must stay {prompt!r}, not {text.prompt!r}"
    )
    _expect(not (text.ids == special.mask_id).any(), f"no mask may be left: {text.ids!r}")
    _expect(len(text) <= limit, f"a text of {len(text)} tokens does not fit a model of {limit}")


def _check_readouts(reads: Sequence[Read], readings: Sequence[Reading], tolerance: float) -> None:
    """Check the five readings of one text against its full distribution."""
    given, top, greedy, drawn, everything = readings
    rows = np.arange(len(reads[0].positions))
    total = np.exp(everything.logprobs.astype(np.float64)).sum(axis=1)
    _expect(bool(np.allclose(total, 1, atol=1e-3)), f"probabilities must sum to 1, not {total}")
    for name, tokens, logprobs in (
        ("TokenLogProbs", given.token_ids, given.logprobs),
        ("TopLogProbs", top.token_ids[:, 0], top.logprobs[:, 0]),
        ("Candidates", greedy.token_ids, greedy.logprobs),
        ("Candidates with a temperature", drawn.token_ids, drawn.logprobs),
    ):
        difference = np.abs(everything.logprobs[rows, tokens] - logprobs).max(initial=0)
        _expect(difference <= tolerance, f"{name} differs from the distribution by {difference}")
    best = everything.logprobs.max(axis=1)
    _expect(
        bool((top.logprobs[:, 0] >= best - tolerance).all()),
        "TopLogProbs must start with the likeliest token",
    )
    forbidden = reads[2].readout.forbidden if isinstance(reads[2].readout, Candidates) else ()
    _expect(
        not np.isin(greedy.token_ids, forbidden).any(),
        "a forbidden token must never be a candidate",
    )
    _expect(
        bool(np.allclose(greedy.confidences, np.exp(greedy.logprobs), atol=1e-3)),
        "confidence is the probability",
    )


def _texts_of(predictor: MaskPredictor) -> list[Ids]:
    random = np.random.default_rng(0)
    allowed = np.setdiff1d(np.arange(predictor.info.vocab_size), [predictor.info.special.mask_id])
    lengths = [length for length in (3, 7, 8, 20) if length <= predictor.info.max_length]
    return [random.choice(allowed, length) for length in lengths]


def _questions(ids: Ids, predictor: MaskPredictor) -> list[Read]:
    """Return one Read per readout of one text, at every other position from 1 on."""
    positions = np.arange(1, len(ids), 2)
    if predictor.info.special.mask_id is not None:
        ids = ids.copy()
        ids[positions[-1]] = predictor.info.special.mask_id
    forbidden = () if predictor.info.special.mask_id is None else (predictor.info.special.mask_id,)
    readouts = (
        TokenLogProbs(ids[positions]),
        TopLogProbs(3),
        Candidates(forbidden=forbidden),
        Candidates(1.0, noise=Noise(5), forbidden=forbidden),
        Distribution(),
    )
    return [Read(ids, positions, readout) for readout in readouts]


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


def _expect(condition: bool, promise: str) -> None:
    if not condition:
        raise AssertionError(promise)
