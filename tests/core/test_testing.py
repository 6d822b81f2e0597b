"""The conformance kits find what they are for: each broken strategy here breaks one promise."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from dise_core import (
    Attention,
    Bidirectional,
    BlockCausal,
    Candidates,
    Constraint,
    LengthController,
    MaskPredictor,
    Plan,
    Read,
    Reading,
    Reviser,
    SamplingParams,
    Score,
    Scorer,
    Selector,
    TokenLogProbs,
    TokenSequence,
    TopLogProbs,
    UnmaskingPolicy,
    UnmaskingStep,
    drive,
)
from dise_core.arrays import Ids, Mask
from dise_core.noise import Noise
from dise_core.plugins.discovery import installed_catalog
from dise_core.scoring.sequence_scorer import SequenceScorer
from dise_core.testing import (
    ToyPredictor,
    check_claims,
    check_constraint,
    check_length_controller,
    check_mask_predictor,
    check_reviser,
    check_scorer,
    check_selector,
    check_unmasking_policy,
)
from dise_core.testing.toy_model import MASK
from dise_core.writing.denoise import Denoiser
from dise_core.writing.generation import Generation
from dise_core.writing.revisions import Revision, rewritten
from dise_strategies.scorers.dise import DiSE
from dise_strategies.selectors.whole import ResponseText
from dise_strategies.unmasking.ranked import LowConfidence
from dise_strategies.unmasking.renoising import EntropyBoundRenoise


class Positions(Selector):
    def select(self, sequence: TokenSequence) -> Mask:
        return sequence.response_positions  # type: ignore[return-value]


class Fickle(Selector):
    def select(self, sequence: TokenSequence) -> Mask:
        sequence.ids[:1] += 1
        return sequence.ids % 2 == 0


class Random(Scorer):
    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        positions = np.flatnonzero(selector.select(sequence))
        if len(positions) == 0:
            return Score.empty()
        yield [Read(sequence.ids, positions, TokenLogProbs(sequence.ids[positions]))]
        return Score(float(np.random.default_rng().random()), positions)


class Silent(Scorer):
    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        yield []
        return Score(-1.0, np.flatnonzero(selector.select(sequence)))


class NotANumber(Scorer):
    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        yield []
        return Score(float("nan"), np.array([0]))


class Choosing(UnmaskingPolicy):
    """Chooses the same whatever it is shown: all that there is, unless it has indices."""

    indices: tuple[int, ...] | tuple[float, ...] | None = None

    def choose(self, step: UnmaskingStep) -> Ids:
        return np.arange(len(step.positions)) if self.indices is None else np.array(self.indices)


class Overeager(LowConfidence):
    """Edits a draft that is not there."""

    edits: ClassVar[bool] = True

    def edit(self, step: UnmaskingStep) -> Ids:
        assert step.drafts is not None
        return np.full(min(len(step.drafts.positions), 1), len(step.drafts.positions))


class Cold(EntropyBoundRenoise):
    """Cools down to nothing."""

    def temperature(self, index: int) -> float:
        return 0.0 if index == self.num_steps - 1 else 1.0


class Unfinished(LengthController):
    def generate(self, prompt: Ids, denoiser: Denoiser, scorer: SequenceScorer) -> Plan[Generation]:
        text = denoiser.text(np.concatenate([prompt, denoiser.masks(2)]), len(prompt))
        return Generation(text, (yield from scorer.evaluate(text)))


class Overlong(LengthController):
    def generate(self, prompt: Ids, denoiser: Denoiser, scorer: SequenceScorer) -> Plan[Generation]:
        text = denoiser.text(np.append(prompt, [1] * denoiser.max_length), len(prompt))
        return Generation(text, (yield from scorer.evaluate(denoiser.text(prompt, len(prompt)))))


class Stale(LengthController):
    def generate(self, prompt: Ids, denoiser: Denoiser, scorer: SequenceScorer) -> Plan[Generation]:
        text = yield from denoiser.write(prompt, 2)
        evaluation = yield from scorer.evaluate(
            denoiser.text(np.append(prompt, [1, 2, 3]), len(prompt))
        )
        return Generation(text, evaluation)


class Grown(LengthController):
    """Writes three times what it says that it may."""

    def generate(self, prompt: Ids, denoiser: Denoiser, scorer: SequenceScorer) -> Plan[Generation]:
        text = yield from denoiser.write(prompt, 3 * denoiser.max_tokens)
        return Generation(text, (yield from scorer.evaluate(text)), finish_reason="length")


class Elsewhere(Scorer):
    """Averages other positions than it tells."""

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        positions = np.flatnonzero(selector.select(sequence))
        score = yield from DiSE().score(sequence, selector)
        return replace(score, positions=positions[:1])


class Bare(Scorer):
    """Yields a Read instead of a list."""

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        positions = np.flatnonzero(selector.select(sequence))
        targets = TokenLogProbs(sequence.ids[positions])
        [reading] = yield Read(sequence.ids, positions, targets)  # type: ignore[misc]
        return Score.mean_of(reading.logprobs, positions)


class Pattern(Constraint):
    """What an expression says."""

    pattern: str

    def expression(self) -> str:
        return self.pattern


def changed(generation: Generation, last: int) -> TokenSequence:
    """The text with another last token."""
    text = generation.sequence
    return replace(text, ids=np.append(text.ids[:-1], last))


class Secret(Reviser):
    """Tells of no change."""

    def revise(self, generation: Generation, denoiser: Any, scorer: Any) -> Plan[Generation]:
        text = changed(generation, 4)
        return replace(
            generation, sequence=text, evaluation=(yield from scorer.evaluate(text)), revisions=()
        )


class Hasty(Reviser):
    """Keeps the score of the text before."""

    def revise(self, generation: Generation, denoiser: Any, scorer: Any) -> Plan[Generation]:
        yield []
        text = changed(generation, 4)
        told = (
            Revision(rewritten(generation.sequence, text, np.zeros(0, np.int64)), 0, 0, 0, True),
        )
        return replace(generation, sequence=text, revisions=told)


class Meddling(Reviser):
    def revise(self, generation: Generation, denoiser: Any, scorer: Any) -> Plan[Generation]:
        yield []
        generation.sequence.ids[-1] = 4
        return generation


class Boastful(Reviser):
    """Counts passes that it did not make."""

    def revise(self, generation: Generation, denoiser: Any, scorer: Any) -> Plan[Generation]:
        yield []
        return replace(generation, revisions=(Revision((), 0.0, 0.0, 3, False),))


class Moody(Reviser):
    """Writes another text each time."""

    def revise(self, generation: Generation, denoiser: Any, scorer: Any) -> Plan[Generation]:
        text = changed(generation, int(np.random.default_rng().integers(10)))
        evaluation = yield from scorer.evaluate(text)
        told = (Revision((), 0.0, evaluation.score.value, 1, True),)
        return replace(generation, sequence=text, evaluation=evaluation, revisions=told)


class Shifted(ToyPredictor):
    """Adds to each log-probability, and more in a batch."""

    def __init__(self, shift: float, more: float) -> None:
        super().__init__()
        self._shift, self._more = shift, more

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        added = self._shift + self._more * len(reads)
        return [replace(each, logprobs=each.logprobs + added) for each in super().read(reads)]


class Nameless(ToyPredictor):
    """Swaps the tokens that were asked for by name."""

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        return [
            replace(
                reading, token_ids=reading.token_ids[:, ::-1], logprobs=reading.logprobs[:, ::-1]
            )
            if isinstance(read.readout, TopLogProbs) and read.readout.ids
            else reading
            for read, reading in zip(reads, super().read(reads), strict=True)
        ]


class Forgetful(ToyPredictor):
    def read(self, reads: Sequence[Read]) -> list[Reading]:
        return super().read(reads)[:1]


@pytest.mark.parametrize(
    ("check", "broken", "promise"),
    [
        (check_selector, Positions(), r"selector .* must return a mask, bool \[11\]"),
        (check_selector, Fickle(), "select must return the same mask"),
        (check_scorer, Random(), "the same text must get the same score"),
        (check_scorer, Silent(), "must ask the model"),
        (check_scorer, NotANumber(), "must return a value that is a finite number"),
        (check_scorer, Elsewhere(), "a mean must be that of the log-probabilities at the"),
        (check_scorer, Bare(), r"must yield a list of Reads, as in `yield \[Read\(...\)\]`"),
        (check_constraint, Pattern(pattern="[0-9"), "must compile: "),
        (check_length_controller, Grown(), r"a response of 3 is above longest\(\), 1"),
        (check_unmasking_policy, Choosing(), r"commits 1\.\.1, not 2"),
        (check_unmasking_policy, Choosing(indices=(0, 0)), r"distinct indices in 0\.\.0"),
        (check_unmasking_policy, Choosing(indices=(0.0,)), r"distinct indices in 0\.\.0, int64"),
        (check_unmasking_policy, Cold(), r"temperature\(47\) is 0\.0, and must be above 0"),
        (check_unmasking_policy, Overeager(), r"must return distinct indices in 0\.\.0"),
        (check_length_controller, Unfinished(), "must return a text without masks"),
        (check_length_controller, Overlong(), "does not fit a model of 12"),
        (check_length_controller, Stale(), "must be that of the text that is returned"),
        (check_reviser, Secret(), "must return an accepted Revision of a text that it changed"),
        (check_reviser, Hasty(), "must be that of the text that is returned"),
        (check_reviser, Meddling(), "leave the given text unchanged"),
        (check_reviser, Boastful(), "must not count more than the 0 passes made"),
        (check_reviser, Moody(), "must be revised the same"),
        (check_mask_predictor, Shifted(0, -0.01), "in a batch: log-probabilities differ by"),
        (check_mask_predictor, Nameless(), "must end with `ids`, then the position's target"),
        (check_mask_predictor, Shifted(9, 0), "log-probabilities must be at most 0, not"),
        (check_mask_predictor, Forgetful(), "answered 1 of 24 reads"),
    ],
)
def test_each_broken_promise_is_named(check, broken: object, promise: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(AssertionError, match=promise):
        check(broken)


@pytest.mark.parametrize("name", sorted(installed_catalog().revisers))
def test_our_own_revisers_conform(name: str) -> None:
    check_reviser(installed_catalog().reviser(name))


@pytest.mark.parametrize("attention", [Bidirectional(), BlockCausal(4), BlockCausal(1)])
def test_the_toy_model_conforms(attention: Attention) -> None:
    toy: MaskPredictor = ToyPredictor(attention=attention)
    check_mask_predictor(toy)


@pytest.mark.parametrize("attention", [Bidirectional(), BlockCausal(4)])
@pytest.mark.parametrize("name", sorted(installed_catalog().scorers))
def test_every_scorer_conforms(name: str, attention: Attention) -> None:
    settings = {"num_samples": 4} if name.startswith("mc") else {}
    toy = ToyPredictor(attention=attention)
    check_scorer(installed_catalog().scorer(name, settings), toy)


REFUSED = {"until-end": Bidirectional(), **dict.fromkeys(("cal", "rho-eos"), BlockCausal(4))}


@pytest.mark.parametrize(
    ("name", "attention"),
    [
        (name, attention)
        for name in sorted(installed_catalog().length_controllers)
        for attention in (Bidirectional(), BlockCausal(4))
        if attention != REFUSED.get(name)
    ],
)
def test_every_length_controller_conforms(name: str, attention: Attention) -> None:
    toy = ToyPredictor(max_length=60, attention=attention)
    check_length_controller(installed_catalog().length_controller(name), toy)


@pytest.mark.parametrize("length", ["fixed", "daedal"])
def test_a_block_causal_model_is_written_in_blocks_of_the_text(length: str) -> None:
    """A prompt of 3 tokens leaves one position of the first block to the response."""
    toy = ToyPredictor(attention=BlockCausal(4))
    asked: list[list[int]] = []

    def read(reads: Sequence[Read]) -> list[Reading]:
        drawn = [read for read in reads if isinstance(read.readout, Candidates)]
        asked.extend(read.positions.tolist() for read in drawn if MASK in read.readout.forbidden)
        return toy.read(reads)

    params = SamplingParams(max_tokens=6, block_length=4, tokens_per_step=9)
    denoiser = Denoiser(toy.info, LowConfidence(), Noise(0), params)
    controller = installed_catalog().length_controller(length)
    scorer = SequenceScorer(DiSE(), ResponseText())
    drive(controller.generate(np.array([1, 2, 3]), denoiser, scorer), read)
    assert all(len({position // 4 for position in positions}) == 1 for positions in asked)
    if length == "fixed":
        assert asked == [[3], [4, 5, 6, 7], [8, 9, 10, 11]]


def claiming(claims: Callable[[str], object]) -> type[MaskPredictor]:
    """Return an adapter that claims what the function says."""
    return type("Claiming", (ToyPredictor,), {"claims": staticmethod(claims)})


def model_type(folder: str) -> object:
    return json.loads(Path(folder, "config.json").read_text())["model_type"]


@pytest.mark.parametrize(
    ("claims", "text"),
    [
        (lambda model: True, r"claims\('of-nobody'\) must be False"),
        (
            lambda model: model == "toy" or model_type(model) == "toy",
            r"claims\('of-nobody'\) must not raise, whatever the name: FileNotFoundError",
        ),
        (
            lambda model: re.match("toy", model),
            r"claims\('toy'\) must return a bool, not <re.Match",
        ),
        (
            lambda model: model == "toy" or model.count("/") == 1,
            r"claims\('./of-nobody'\) must be False",
        ),
        (
            lambda model: model == "toy" or Path(model).is_dir(),
            r"claims\('.*/empty'\) must be False",
        ),
    ],
)
def test_broken_claims_are_found(claims: Callable[[str], object], text: str) -> None:
    with pytest.raises(AssertionError, match=text):
        check_claims(claiming(claims), ["toy"])


def test_claims_of_the_models_that_are_given() -> None:
    check_claims(ToyPredictor, ["toy"], ["countdown"])
    with pytest.raises(AssertionError, match=r"claims\('toy-2'\) must be True"):
        check_claims(ToyPredictor, ["toy", "toy-2"])
    with pytest.raises(AssertionError, match=r"claims\('toy'\) must be False"):
        check_claims(ToyPredictor, [], ["toy"])
