"""Terms: the Reads and weights whose sum is a score."""

from typing import Any

import numpy as np
import pytest

from dise_core import (
    BlockCausal,
    Floats,
    InputError,
    Plan,
    PluginError,
    Scorer,
    Selector,
    Terms,
    TokenSequence,
    drive,
)
from dise_core.plugins.discovery import installed_catalog
from dise_core.scoring.sequence_scorer import WholeResponse
from dise_core.testing import ToyPredictor, check_scorer
from dise_strategies.scorers.dise import DiSE

LINEAR: list[tuple[str, dict[str, Any]]] = [
    ("dise", {}),
    ("shadow", {}),
    ("interleaved", {"k": 3}),
    ("mc", {"num_samples": 6}),
    ("mc", {"num_samples": 6, "spread": "gauss", "shared_masks": True}),
    ("mc", {"num_samples": 4, "cfg_scale": 0.5}),
    ("mc", {"num_samples": 5, "estimator": "llada"}),
    ("mc", {"num_samples": 4, "estimator": "dream"}),
]


def text_of(toy: ToyPredictor) -> TokenSequence:
    ids = np.random.default_rng(0).integers(0, 9, 11)
    info = toy.info
    return TokenSequence.of(ids[:3], ids[3:], info.special, 4, None, info.block_origin)


@pytest.mark.parametrize("toy", [ToyPredictor(), ToyPredictor(attention=BlockCausal(4))])
@pytest.mark.parametrize(("name", "settings"), LINEAR)
def test_the_weighted_log_probabilities_sum_to_the_score(
    name: str, settings: dict[str, Any], toy: ToyPredictor
) -> None:
    scorer, text = installed_catalog().scorer(name, settings), text_of(toy)
    score = drive(scorer.score(text, WholeResponse()), toy.read)
    terms = drive(scorer.terms(text, WholeResponse()), toy.read)
    readings = toy.read(terms.reads)
    pairs = zip(terms.weights, readings, strict=True)
    total = sum(float(weights @ reading.logprobs) for weights, reading in pairs)
    assert total == pytest.approx(score.value, abs=1e-5)
    assert terms.positions.tolist() == score.positions.tolist()
    assert terms.is_mean == score.is_mean


class Rising(WholeResponse):
    """Gives later tokens more weight."""

    def weights(self, sequence: TokenSequence) -> Floats:
        return self.select(sequence) * np.arange(float(len(sequence)))


@pytest.mark.parametrize(("name", "settings"), LINEAR[:3])
def test_the_terms_of_a_mean_take_a_selectors_weights(name: str, settings: dict[str, Any]) -> None:
    toy, scorer = ToyPredictor(), installed_catalog().scorer(name, settings)
    score = drive(scorer.score(text_of(toy), Rising()), toy.read)
    terms = drive(scorer.terms(text_of(toy), Rising()), toy.read)
    assert drive(terms.score(), toy.read).value == pytest.approx(score.value, abs=1e-6)
    assert score.value != drive(scorer.score(text_of(toy), WholeResponse()), toy.read).value


@pytest.mark.parametrize(("name", "settings"), LINEAR)
def test_the_terms_of_no_position_score_as_nothing(name: str, settings: dict[str, Any]) -> None:
    toy, nothing = ToyPredictor(), installed_catalog().selector("prompt-last-1")
    scorer = installed_catalog().scorer(name, settings)
    text = TokenSequence.of([], [4, 5], toy.info.special, 4, 2)
    terms = drive(scorer.terms(text, nothing), toy.read)
    assert drive(terms.score(), toy.read).value == -np.inf


@pytest.mark.parametrize("name", ["written", "dise+written", "ar-perplexity"])
def test_a_score_that_is_no_sum_is_refused_by_its_name(name: str) -> None:
    toy, scorer = ToyPredictor(), installed_catalog().scorer(name, {})
    with pytest.raises(InputError, match=f"^scorer {type(scorer).__name__} of .* has no terms"):
        drive(scorer.terms(text_of(toy), WholeResponse()), toy.read)


class ByTerms(Scorer):
    """Has terms alone."""

    def terms(self, sequence: TokenSequence, selector: Selector) -> Plan[Terms]:
        return (yield from DiSE().terms(sequence, selector))


class Neither(Scorer):
    """Forgot both."""


def test_a_scorer_may_implement_terms_alone() -> None:
    toy = ToyPredictor()
    check_scorer(ByTerms())
    scores = [drive(s.score(text_of(toy), WholeResponse()), toy.read) for s in (ByTerms(), DiSE())]
    assert scores[0].value == pytest.approx(scores[1].value, abs=1e-6)
    assert scores[0].is_mean


def test_a_scorer_without_score_and_terms_is_told_so() -> None:
    toy = ToyPredictor()
    with pytest.raises(PluginError, match=r"Neither of .* must implement score or terms"):
        drive(Neither().score(text_of(toy), WholeResponse()), toy.read)
