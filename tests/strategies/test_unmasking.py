"""Each policy against its rule, written naively."""

import math

import numpy as np
import pytest

from dise_core import SamplingParams, UnmaskingStep
from dise_core.front.llm import LLM
from dise_core.noise import Noise
from dise_core.plugins.discovery import installed_catalog
from dise_core.testing import ToyPredictor, check_unmasking_policy
from dise_strategies.unmasking.random import Origin, RandomUnmasking
from dise_strategies.unmasking.ranked import LowConfidence


def step(confidences: list[float], quota: int = 1, seed: int = 0) -> UnmaskingStep:
    return UnmaskingStep(
        np.arange(len(confidences)),
        np.array(confidences),
        quota,
        quota / len(confidences),
        Noise(seed),
    )


@pytest.mark.parametrize("name", sorted(installed_catalog().unmasking_policies))
def test_every_policy_conforms(name: str) -> None:
    check_unmasking_policy(installed_catalog().unmasking_policy(name))


def test_random_unmasking_commits_other_positions_with_another_seed() -> None:
    def order(seed: int) -> list[int]:
        step = UnmaskingStep(np.arange(30), np.zeros(30), 10, 1 / 3, Noise(seed))
        return RandomUnmasking().choose(step).tolist()

    assert order(1) == order(1)
    assert sorted({*order(1), *order(2)}) != sorted(order(1))
    assert len(set(order(1))) == 10


def test_low_confidence_prefers_the_left_of_equals() -> None:
    assert LowConfidence().choose(step([0.5, 0.9, 0.5, 0.9], quota=3)).tolist() == [1, 3, 0]


@pytest.mark.parametrize("policy", ["low-confidence", "entropy", "margin"])
def test_a_ranked_policy_writes_the_positions_its_confidence_puts_first(policy: str) -> None:
    """The first committed position, told from the toy model's logits in float64."""
    toy = ToyPredictor()
    ids = np.array([1, 2, 3] + [11] * 5)
    probabilities = np.exp(toy.logits(ids)[3:])
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    ordered = np.sort(probabilities, axis=1)[:, ::-1]
    measure = {
        "low-confidence": np.where(np.arange(12) == 11, 0, probabilities).max(axis=1),
        "entropy": (probabilities * np.log(probabilities)).sum(axis=1),
        "margin": ordered[:, 0] - ordered[:, 1],
    }[policy]
    LLM(toy).generate(
        [[1, 2, 3]], SamplingParams(max_tokens=5, tokens_per_step=1, unmasking=policy)
    )
    [second] = toy.batches[1]
    assert np.flatnonzero(second != ids).tolist() == [3 + int(np.argmax(measure))]


def test_alg_temp_draws_positions_by_the_softmax_of_their_confidence() -> None:
    """20,000 draws of one of three; each share within 4 standard errors (a false alarm in about
    5,000 runs).
    """
    policy = LowConfidence(alg_temp=0.5)
    confidences = [0.9, 0.5, 0.1]
    draws = [int(policy.choose(step(confidences, seed=seed))[0]) for seed in range(20_000)]
    weights = np.exp(np.array(confidences) / 0.5)
    for index, expected in enumerate(weights / weights.sum()):
        assert abs(draws.count(index) / 20_000 - expected) < 4 * math.sqrt(
            expected * (1 - expected) / 20_000
        )


def test_origin_commits_each_position_with_the_share_of_the_schedule() -> None:
    """2,000 steps of 10 positions at a share of 0.3; within 4 standard errors."""
    sizes = [len(Origin().choose(step([0.5] * 10, quota=3, seed=seed))) for seed in range(2_000)]
    assert abs(np.mean(sizes) - 3) < 4 * math.sqrt(10 * 0.3 * 0.7 / 2_000)
    assert min(sizes) == 0
