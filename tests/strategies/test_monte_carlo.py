"""The Monte Carlo scorers on a model whose likelihood is known in closed form, and against the
published code's recipes.
"""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest

from dise_core import InputError, Read, Reading, Score, Scorer, TokenLogProbs, TokenSequence, drive
from dise_core.arrays import Floats
from dise_core.cost import count_nfe
from dise_core.plugins import installed_catalog
from dise_core.reading import Plan
from dise_core.sequence import SpecialTokens
from dise_strategies.scorers.monte_carlo import (
    DreamMonteCarlo,
    MonteCarlo,
    MonteCarloScorer,
    StratifiedMonteCarlo,
)
from dise_strategies.selectors.counted import FirstK
from dise_strategies.selectors.whole import Full, Response

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
        agrees = np.ones(len(self.texts), bool)
        for position, token in seen.items():
            agrees &= self.texts[:, position] == token
        return float(self.probabilities[agrees].sum())


JOINT = ExactJoint()
TEXT = [0, 2, 1, 1, 0]


def score(scorer: Scorer, prompt_length: int = 0, selector: object = None) -> Score:
    sequence = TokenSequence(np.array(TEXT), prompt_length, SPECIAL)
    return drive(scorer.score(sequence, selector or Response()), JOINT.read)  # type: ignore[arg-type]


@pytest.mark.parametrize("prompt_length", [0, 2])
@pytest.mark.parametrize("scorer", [MonteCarlo, StratifiedMonteCarlo])
def test_20_000_samples_find_the_exact_likelihood(
    scorer: type[MonteCarloScorer], prompt_length: int
) -> None:
    """Within 3 standard errors; the seed is fixed, a new one would fail once in 370 times."""
    result = score(scorer(num_samples=20_000, seed=1), prompt_length)
    assert result.standard_error is not None
    assert 0 < result.standard_error < 0.02
    exact = JOINT.log_probability(TEXT, prompt_length)
    assert abs(result.value - exact) < 3 * result.standard_error
    assert result.log_likelihood == result.value


def test_full_is_the_likelihood_of_prompt_and_response_together() -> None:
    result = score(MonteCarlo(num_samples=20_000), prompt_length=2, selector=Full())
    assert result.standard_error is not None
    assert abs(result.value - JOINT.log_probability(TEXT)) < 3 * result.standard_error


@pytest.mark.parametrize(
    "settings",
    [
        {"cls": MonteCarlo, "num_samples": 64},
        {"cls": StratifiedMonteCarlo, "num_samples": 64, "batch_size": 4},
    ],
)
def test_the_standard_error_is_the_spread_over_200_repetitions(settings: dict[str, object]) -> None:
    cls = settings["cls"]
    options = {name: value for name, value in settings.items() if name != "cls"}
    results = [score(cls(seed=seed, **options)) for seed in range(200)]  # type: ignore[operator]
    spread = np.std([result.value for result in results], ddof=1)
    reported = math.sqrt(np.mean([(result.standard_error or 0) ** 2 for result in results]))
    assert abs(reported / spread - 1) < 0.2


def test_stratified_samples_spread_less_than_independent_ones() -> None:
    independent = np.std([score(MonteCarlo(num_samples=20, seed=seed)).value for seed in range(60)])
    stratified = np.std(
        [score(StratifiedMonteCarlo(num_samples=20, seed=seed)).value for seed in range(60)]
    )
    assert stratified < independent


def test_one_stratified_batch_reports_more_than_its_true_error() -> None:
    results = [score(StratifiedMonteCarlo(num_samples=20, seed=seed)) for seed in range(200)]
    spread = np.std([result.value for result in results])
    assert np.mean([result.standard_error or 0 for result in results]) > spread


def test_the_stratified_lengths_are_those_of_llada() -> None:
    """LLaDA's forward process, written as it publishes it: a random first length, then evenly on,
    around the corner.
    """
    random = np.random.default_rng(0)
    first = int(np.random.default_rng(0).integers(1, 8))
    expected = [(round(first + i * 7 / 4) - 1) % 7 + 1 for i in range(4)]
    samples = StratifiedMonteCarlo(num_samples=4).samples(7, random)
    assert [int(sample.is_masked.sum()) for sample in samples] == expected


def test_dream_puts_an_end_token_behind_and_never_masks_the_first_or_last_token() -> None:
    seen: list[Read] = []

    def read(reads: Sequence[Read]) -> list[Reading]:
        seen.extend(reads)
        return [
            Reading(r.readout.targets, np.full(len(r.positions), -1.0, np.float32)) for r in reads
        ]  # type: ignore[union-attr]

    sequence = TokenSequence(np.array([0, 1, 1, 0]), 0, ENDED)
    drive(DreamMonteCarlo(num_samples=200).score(sequence, Response()), read)
    assert all(list(r.token_ids[[0, -1]]) == [0, END] and len(r.token_ids) == 5 for r in seen)
    assert {tuple(r.positions) for r in seen} == {
        subset for n in (1, 2, 3) for subset in itertools.combinations((1, 2, 3), n)
    }
    ended = TokenSequence(np.array([0, 1, END]), 1, ENDED)
    seen.clear()
    drive(DreamMonteCarlo(num_samples=50).score(ended, Response()), read)
    assert {(len(r.token_ids), *r.positions) for r in seen} == {(3, 1)}


def test_dreams_weights_make_the_expected_number_of_tokens_whole() -> None:
    """E[sum over masked tokens of 1 / t] is the number of tokens; each is masked with probability
    t.
    """
    random = np.random.default_rng(0)
    samples = list(DreamMonteCarlo(num_samples=50_000).samples(6, random))
    sums = [sample.is_masked.sum() * sample.weight for sample in samples]
    assert abs(np.mean(sums) - 6) < 4 * np.std(sums) / math.sqrt(len(sums))


@pytest.mark.parametrize("name", ["mc", "mc-llada", "mc-dream"])
def test_the_same_seed_gives_the_same_value_and_another_seed_another(name: str) -> None:
    catalog = installed_catalog()
    first, again, other = (
        score(catalog.scorer(name, {"seed": seed, "num_samples": 8})).value for seed in (1, 1, 2)
    )
    assert first == again != other


def test_one_sample_has_no_standard_error() -> None:
    assert score(MonteCarlo(num_samples=1)).standard_error is None


def test_a_partial_selection_is_given_all_other_tokens() -> None:
    """One selected token leaves nothing to chance: its exact conditional."""
    result = score(MonteCarlo(num_samples=4), selector=FirstK(k=1))
    assert result.value == pytest.approx(
        JOINT.log_probability(TEXT) - math.log(JOINT._mass({1: 2, 2: 1, 3: 1, 4: 0})), abs=1e-5
    )
    assert result.standard_error == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_samples": 0}, "num_samples=0: Input should be greater than or equal to 1"),
        ({"num_samples": 6, "batch_size": 4}, "batch_size=4 does not divide num_samples=6"),
        ({"sample": 3}, "there is no setting 'sample'"),
        ({"cfg_scale": -0.5}, "cfg_scale=-0.5: Input should be greater than or equal to 0"),
        ({"cfg_scale": math.inf}, "cfg_scale=inf: Input should be a finite number"),
    ],
)
def test_bad_settings_are_refused_by_name(settings: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        installed_catalog().scorer("mc-llada", settings)


@pytest.mark.parametrize(("prompt_length", "num_passes"), [(2, 8), (0, 4)])
def test_guidance_masks_the_whole_prompt_and_costs_twice_the_passes_where_there_is_one(
    prompt_length: int, num_passes: int
) -> None:
    """With "full" the prompt is masked at random in the text and wholly in the one that
    guides it.
    """
    seen: list[Read] = []

    def read(reads: Sequence[Read]) -> list[Reading]:
        seen.extend(reads)
        return JOINT.read(reads)

    sequence = TokenSequence(np.array(TEXT), prompt_length, SPECIAL)
    guided, nfe = drive(
        count_nfe(MonteCarlo(num_samples=4, cfg_scale=0.5).score(sequence, Full())), read
    )
    assert nfe == num_passes
    for each in seen:
        if prompt_length == 0:
            assert each.guidance is None
        else:
            assert each.guidance is not None
            assert each.guidance.scale == 0.5
            assert (
                each.guidance.token_ids.tolist()
                == [MASK] * prompt_length + each.token_ids[prompt_length:].tolist()
            )
    if prompt_length == 0:
        assert guided.value == score(MonteCarlo(num_samples=4), selector=Full()).value


def test_many_samples_never_exist_all_at_once() -> None:
    sizes: list[int] = []

    def counted(plan: Plan[Score]) -> None:
        reads = next(plan)
        try:
            while True:
                sizes.append(len(reads))
                reads = plan.send(JOINT.read(reads))
        except StopIteration:
            pass

    counted(
        MonteCarlo(num_samples=600).score(TokenSequence(np.array(TEXT), 0, SPECIAL), Response())
    )
    assert sizes == [256, 256, 88]
