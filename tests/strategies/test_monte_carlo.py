"""The Monte Carlo scorers on a model whose likelihood is known in closed form, and against the
published code's recipes.
"""

import itertools
import math
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest

from dise_core import Read, Reading, Score, Scorer, TokenLogProbs, TokenSequence, drive
from dise_core.arrays import Floats
from dise_core.plans.cost import count_nfe
from dise_core.sequence import SpecialTokens
from dise_strategies.scorers.monte_carlo import MonteCarlo
from dise_strategies.selectors.counted import FirstK
from dise_strategies.selectors.whole import Full, Response
from tests.recorded import Recorded, one_nat_each

MASK, END = 3, 2
SPECIAL = SpecialTokens(MASK, frozenset({END}))
ENDED = SpecialTokens(MASK, frozenset({END}), END)
LENGTH = 5


class ExactJoint:
    """A distribution over all texts of five tokens out of three, asked for its exact
    conditionals.
    """

    def __init__(self, sharpness: float = 1.5) -> None:
        random = np.random.default_rng(3)
        self.texts = np.array(list(itertools.product(range(3), repeat=LENGTH)))
        weights = np.exp(sharpness * random.normal(size=len(self.texts)))
        self.probabilities: Floats = weights / weights.sum()

    def log_probability(self, ids: Sequence[int], given: int = 0) -> float:
        """Return log p(ids[given:] | ids[:given])."""
        return math.log(self._mass(dict(enumerate(ids))) / self._mass(dict(enumerate(ids[:given]))))

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        return [self._answer(read) for read in reads]

    def _answer(self, read: Read) -> Reading:
        assert isinstance(read.readout, TokenLogProbs)
        seen = {i: int(token) for i, token in enumerate(read.token_ids) if token != MASK}
        logprobs = [
            math.log(self._mass(seen | {int(position): int(target)}) / self._mass(seen))
            for position, target in zip(read.positions, read.readout.targets, strict=True)
        ]
        return Reading(read.readout.targets, np.array(logprobs, np.float32))

    def _mass(self, seen: dict[int, int]) -> float:
        return self._mass_of(tuple(sorted(seen.items())))

    @cache  # noqa: B019
    def _mass_of(self, seen: tuple[tuple[int, int], ...]) -> float:
        agrees = np.ones(len(self.texts), bool)
        for position, token in seen:
            agrees &= self.texts[:, position] == token
        return float(self.probabilities[agrees].sum())


JOINT = ExactJoint()
TEXT = [0, 2, 1, 1, 0]


def score(scorer: Scorer, prompt_length: int = 0, selector: object = None) -> Score:
    sequence = TokenSequence(np.array(TEXT), prompt_length, SPECIAL)
    return drive(scorer.score(sequence, selector or Response()), JOINT.read)  # type: ignore[arg-type]


@pytest.mark.parametrize(("prompt_length", "selector"), [(0, None), (2, None), (2, Full())])
@pytest.mark.parametrize("estimator", ["paper", "llada"])
def test_20_000_samples_find_the_exact_likelihood(
    estimator: str, prompt_length: int, selector: Full | None
) -> None:
    """Within 3 standard errors; the seed is fixed, a new one would fail once in 370 times."""
    result = score(
        MonteCarlo.model_validate({"estimator": estimator, "num_samples": 20_000, "seed": 1}),
        prompt_length,
        selector,
    )
    assert result.standard_error is not None
    assert 0 < result.standard_error < 0.02
    exact = JOINT.log_probability(TEXT, 0 if selector else prompt_length)
    assert abs(result.value - exact) < 3 * result.standard_error
    assert result.log_likelihood == result.value


@pytest.mark.parametrize("scorer", [MonteCarlo(), MonteCarlo(estimator="llada", batch_size=4)])
def test_the_standard_error_is_the_spread_over_200_repetitions(scorer: MonteCarlo) -> None:
    again = ({"seed": seed, "num_samples": 64} for seed in range(200))
    results = [score(scorer.model_copy(update=changes)) for changes in again]
    spread = np.std([result.value for result in results], ddof=1)
    reported = math.sqrt(np.mean([(result.standard_error or 0) ** 2 for result in results]))
    assert abs(reported / spread - 1) < 0.2


def test_stratified_samples_spread_less_than_independent_ones_and_than_they_report() -> None:
    """A single batch overestimates its error."""
    independent = [score(MonteCarlo(num_samples=20, seed=seed)).value for seed in range(200)]
    stratified = [
        score(MonteCarlo(estimator="llada", num_samples=20, seed=seed)) for seed in range(200)
    ]
    spread = np.std([result.value for result in stratified])
    assert spread < np.std(independent)
    assert spread < np.mean([result.standard_error or 0 for result in stratified])


def test_the_stratified_lengths_are_those_of_llada() -> None:
    """LLaDA's forward process, written as it publishes it: a random first length, then evenly on,
    around the corner.
    """
    random = np.random.default_rng(0)
    first = int(np.random.default_rng(0).integers(1, 8))
    expected = [(round(first + i * 7 / 4) - 1) % 7 + 1 for i in range(4)]
    samples = MonteCarlo(estimator="llada", num_samples=4).samples(7, random)
    assert [int(sample.is_masked.sum()) for sample in samples] == expected


def test_dream_puts_an_end_token_behind_and_never_masks_the_first_or_last_token() -> None:
    read = Recorded(one_nat_each)
    seen = read.reads
    sequence = TokenSequence(np.array([0, 1, 1, 0]), 0, ENDED)
    drive(MonteCarlo(estimator="dream", num_samples=200).score(sequence, Response()), read)
    assert all(list(r.token_ids[[0, -1]]) == [0, END] and len(r.token_ids) == 5 for r in seen)
    assert {tuple(r.positions) for r in seen} == {
        subset for n in (1, 2, 3) for subset in itertools.combinations((1, 2, 3), n)
    }
    ended = TokenSequence(np.array([0, 1, END]), 1, ENDED)
    seen.clear()
    drive(MonteCarlo(estimator="dream", num_samples=50).score(ended, Response()), read)
    assert {(len(r.token_ids), *r.positions) for r in seen} == {(3, 1)}


def test_dreams_weights_make_the_expected_number_of_tokens_whole() -> None:
    """E[sum over masked tokens of 1 / t] is the number of tokens; each is masked with probability
    t.
    """
    random = np.random.default_rng(0)
    samples = list(MonteCarlo(estimator="dream", num_samples=50_000).samples(6, random))
    sums = [sample.is_masked.sum() * sample.weight for sample in samples]
    assert abs(np.mean(sums) - 6) < 4 * np.std(sums) / math.sqrt(len(sums))


def test_a_partial_selection_is_given_all_other_tokens() -> None:
    """One selected token leaves nothing to chance: its exact conditional."""
    result = score(MonteCarlo(num_samples=4), selector=FirstK(k=1))
    assert result.value == pytest.approx(
        JOINT.log_probability(TEXT) - math.log(JOINT._mass({1: 2, 2: 1, 3: 1, 4: 0})), abs=1e-5
    )
    assert result.standard_error == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(("prompt_length", "num_passes"), [(2, 8), (0, 4)])
def test_guidance_masks_the_whole_prompt_and_costs_twice_the_passes_where_there_is_one(
    prompt_length: int, num_passes: int
) -> None:
    """With "full" the prompt is masked at random in the text and wholly in the one that
    guides it.
    """
    read = Recorded(JOINT.read)
    sequence = TokenSequence(np.array(TEXT), prompt_length, SPECIAL)
    guided, nfe = drive(
        count_nfe(MonteCarlo(num_samples=4, cfg_scale=0.5).score(sequence, Full())), read
    )
    assert nfe == num_passes
    if prompt_length == 0:
        assert all(question.guidance is None for question in read.reads)
        assert guided.value == score(MonteCarlo(num_samples=4), selector=Full()).value
        return
    for question in read.reads:
        assert question.guidance is not None
        assert question.guidance.scale == 0.5
        masked = [MASK] * prompt_length + question.token_ids[prompt_length:].tolist()
        assert question.guidance.token_ids.tolist() == masked


def test_many_samples_never_exist_all_at_once() -> None:
    sizes: list[int] = []

    def read(reads: Sequence[Read]) -> list[Reading]:
        sizes.append(len(reads))
        return JOINT.read(reads)

    text = TokenSequence(np.array(TEXT), 0, SPECIAL)
    drive(MonteCarlo(num_samples=600).score(text, Response()), read)
    assert sizes == [256, 256, 88]


SPREADS = [
    *(MonteCarlo(spread="gauss", num_samples=count) for count in (1, 2, 3, 6)),
    MonteCarlo(num_samples=2),
]


def mean_of_hidden(num_masked: int) -> float:
    """Return the mean log-probability of a hidden token where so many are, over all sets."""
    sets = list(itertools.combinations(range(LENGTH), num_masked))
    seen = [{i: TEXT[i] for i in range(LENGTH) if i not in hidden} for hidden in sets]
    return float(
        np.mean(
            [
                math.log(JOINT._mass(rest | {i: TEXT[i]}) / JOINT._mass(rest))
                for hidden, rest in zip(sets, seen, strict=True)
                for i in hidden
            ]
        )
    )


@pytest.mark.parametrize("scorer", SPREADS, ids=repr)
def test_each_spread_is_right_in_the_mean(scorer: MonteCarlo) -> None:
    """Within 4 standard errors of the exact likelihood, or for gauss of its own weighted sum."""
    exact = JOINT.log_probability(TEXT)
    if scorer.spread == "gauss":
        nodes = {
            1: [(0.5, 1)],
            2: [(0.5 - 0.5 / 3**0.5, 0.5), (0.5 + 0.5 / 3**0.5, 0.5)],
            3: [(0.5 - 0.5 * 0.6**0.5, 5 / 18), (0.5, 8 / 18), (0.5 + 0.5 * 0.6**0.5, 5 / 18)],
        }[scorer.group_size]
        hidden = [(math.ceil(LENGTH * t), weight) for t, weight in nodes]
        exact = sum(LENGTH * weight * mean_of_hidden(masked) for masked, weight in hidden)
    seeds = (scorer.model_copy(update={"seed": seed}) for seed in range(400))
    values = [score(seeded).value for seeded in seeds]
    assert abs(np.mean(values) - exact) < 4 * np.std(values) / 400**0.5


@pytest.mark.parametrize("scorer", SPREADS, ids=repr)
@pytest.mark.parametrize("num_tokens", [1, 2, 7])
def test_the_weights_count_every_token_once(scorer: MonteCarlo, num_tokens: int) -> None:
    samples = list(scorer.samples(num_tokens, np.random.default_rng(0)))
    counts = [sample.weight * sample.is_masked.sum() for sample in samples]
    assert (len(counts), np.mean(counts)) == (scorer.num_samples, pytest.approx(num_tokens))


def test_a_single_group_tells_no_standard_error() -> None:
    scorer = MonteCarlo(spread="gauss", num_samples=3)
    assert score(scorer).standard_error is None
    assert score(scorer.model_copy(update={"num_samples": 6})).standard_error


@pytest.mark.parametrize("shared", [True, False])
def test_texts_of_one_prompt_and_length_can_share_their_masks(shared: bool) -> None:
    masks = []
    for ids in ([0, 1, 0, 1, 2], [0, 1, 2, 2, 2], [0, 1, 0, 1], [1, 1, 0, 1, 2]):
        text, read = TokenSequence(np.array(ids), 2, SPECIAL), Recorded(JOINT.read)
        drive(MonteCarlo(num_samples=20, shared_masks=shared).score(text, Response()), read)
        masks.append([asked.positions.tolist() for asked in read.reads])
    assert (masks[0] == masks[1]) == shared
    assert masks[0] != masks[2]
    assert masks[0] != masks[3]
