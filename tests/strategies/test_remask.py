"""Remask against a loop that runs the toy model one text at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dise_core import (
    BlockCausal,
    Denoiser,
    Evaluation,
    Generation,
    Noise,
    SamplingParams,
    Score,
    SequenceScorer,
    TokenReport,
    count_nfe,
    drive,
)
from dise_core.history import Writing
from dise_core.plugins.discovery import installed_catalog
from dise_core.testing import ToyPredictor, check_reviser
from dise_core.testing.toy_model import END, MASK
from dise_strategies.revisers.remask import Remask

TOYS = [ToyPredictor, lambda: ToyPredictor(attention=BlockCausal(4))]

SETTINGS: list[dict[str, Any]] = [
    {"threshold": 0.9},
    {"threshold": 0.3},
    {"threshold": 1.0, "max_tokens": 2, "accept": "always"},
    {"threshold": 0.6, "max_tokens": 3, "accept": "always", "rounds": 2},
    {"threshold": 1.0, "rounds": 1},
]


def predicted(toy: ToyPredictor, ids: list[int]) -> list[list[float]]:
    """The log-probabilities at each position; a block-causal text is completed to its border."""
    block = toy.info.block_length
    more = 0 if block is None else -len(ids) % block
    logits = toy.logits(np.array(ids + [END] * more))[: len(ids)]
    logprobs: list[list[float]] = (logits - np.logaddexp.reduce(logits, 1, keepdims=True)).tolist()
    return logprobs


def written_again(
    toy: ToyPredictor, ids: list[int], start: int, masked: set[int], told: dict[int, float]
) -> list[int]:
    """One token a step, the surest first; block by block where the model has blocks, and there cut
    behind a new end token if nothing followed the old one. told: gets the log-probabilities of what
    is written.
    """
    is_cut = toy.info.block_length is not None and END not in ids[start:-1]
    ids = [MASK if at in masked else token for at, token in enumerate(ids)]
    block = toy.info.block_length or len(ids)
    for first in range(0, len(ids), block):
        here = [at for at in range(first, min(first + block, len(ids))) if ids[at] == MASK]
        left = list(here)
        while left:
            rows = predicted(toy, ids[: min(first + block, len(ids))])
            best = {at: max((p, -token) for token, p in enumerate(rows[at][:MASK])) for at in left}
            at = max(left, key=lambda place: (best[place][0], -place))
            told[at], ids[at] = best[at][0], -best[at][1]
            left.remove(at)
        if is_cut and here and END in ids[start : first + block]:
            return ids[: ids.index(END, start) + 1]
    return ids


def score_of(toy: ToyPredictor, ids: list[int], start: int) -> float:
    """DiSE over the last 10 tokens that are not end tokens."""
    rows, at = predicted(toy, ids), [i for i in range(start, len(ids)) if ids[i] != END][-10:]
    return sum(rows[i][ids[i]] for i in at) / len(at) if at else -math.inf


def whole_score(toy: ToyPredictor, ids: list[int], start: int) -> float:
    rows = predicted(toy, ids)
    return sum(rows[at][ids[at]] for at in range(start, len(ids))) / (len(ids) - start)


def naive(
    toy: ToyPredictor, ids: list[int], start: int, remask: Remask
) -> tuple[list[int], Any, Any]:
    """The ids that remask ends with, its rounds, and the log-probabilities of what it wrote."""
    seen, rounds, told = [ids], [], dict[int, float]()
    for _ in range(remask.rounds):
        rows = predicted(toy, ids)
        places = sorted(range(start, len(ids)), key=lambda at: (rows[at][ids[at]], at))
        doubted = [at for at in places if math.exp(rows[at][ids[at]]) < remask.threshold]
        masked = set(doubted[: remask.max_tokens])
        if not masked:
            break
        new = written_again(toy, ids, start, masked, again := dict(told))
        scores = whole_score(toy, ids, start), whole_score(toy, new, start)
        is_new, is_better = new not in seen, scores[1] > scores[0]
        is_accepted = is_new and (is_better or remask.accept == "always")
        rounds.append((sorted(at - start for at in masked), *scores, is_new))
        if not is_accepted:
            break
        seen.append(new)
        ids, told = new, again
    return ids, rounds, told


@pytest.mark.parametrize("make", TOYS, ids=["full", "blocks"])
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("seed", range(6))
def test_it_is_what_a_naive_loop_does(make: Any, settings: dict[str, Any], seed: int) -> None:
    toy = make()
    given = np.random.default_rng(seed).integers(0, 10, 12 + seed).tolist()
    if seed % 3 == 1:
        given[-1] = END
    if seed % 3 == 2:
        given[6] = given[-1] = END
    revised, nfe = revise(toy, given, 3, Remask(**settings))
    ids, rounds, told = naive(toy, given, 3, Remask(**settings))
    assert revised.sequence.ids.tolist() == ids
    writing = revised.sequence.own_writing() or Writing.of(revised.sequence.ids)
    expected = [told.get(at, math.nan) for at in range(len(ids))]
    np.testing.assert_allclose(writing.logprobs, expected, atol=1e-5)
    found = [
        ([token.position for token in one.tokens], one.score_before, one.score_after)
        for one in revised.revisions
    ]
    for one, expected in zip(found, rounds, strict=True):
        assert one[0] == expected[0]
        assert one[1:] == pytest.approx(expected[1:3], abs=1e-5)
    assert revised.evaluation.score.value == pytest.approx(score_of(toy, ids, 3), abs=1e-5)
    if toy.info.block_length is None:
        assert nfe == sum(len(masked) + is_new for masked, *_, is_new in rounds)
    assert sum(one.nfe for one in revised.revisions) == nfe


def scorer() -> SequenceScorer:
    catalog = installed_catalog()
    return SequenceScorer(catalog.scorer("dise"), catalog.selector("last-10"))


def denoiser(toy: ToyPredictor, num_tokens: int) -> Denoiser:
    policy = installed_catalog().unmasking_policy("threshold")
    params = SamplingParams(max_tokens=num_tokens, block_length=4, tokens_per_step=3)
    return Denoiser(toy.info, policy, Noise(0), params)


def revise(toy: ToyPredictor, ids: list[int], start: int, remask: Remask) -> tuple[Generation, int]:
    writer = denoiser(toy, len(ids) - start)
    text = writer.text(np.array(ids), start)
    generation = Generation(text, drive(scorer().evaluate(text), toy.read))
    return drive(count_nfe(remask.revise(generation, writer, scorer())), toy.read)


def doubted(remask: Remask, probabilities: list[float]) -> list[int]:
    """What is masked of a response whose tokens are reported with these probabilities."""
    toy, start = ToyPredictor(), 3
    writer = denoiser(toy, len(probabilities))
    text = writer.text(np.array([1] * start + [4] * len(probabilities)), start)
    shape = len(probabilities), 0
    report = TokenReport(
        np.log(probabilities).astype(np.float32), np.zeros(shape, int), np.zeros(shape, np.float32)
    )
    generation = Generation(text, Evaluation(Score.empty(), report))
    [*revisions] = drive(remask.revise(generation, writer, scorer()), toy.read).revisions
    return [token.position for revision in revisions for token in revision.tokens]


@given(
    probabilities=st.lists(st.sampled_from([0.05, 0.3, 0.62, 0.97]), min_size=1, max_size=14),
    most=st.integers(1, 5),
)
def test_the_least_probable_are_masked_ties_leftmost(probabilities: list[float], most: int) -> None:
    places = [at for at, probability in enumerate(probabilities) if probability < 0.62001]
    chosen = sorted(places, key=lambda at: (probabilities[at], at))[:most]
    remask = Remask(threshold=0.62001, rounds=1, max_tokens=most)
    assert doubted(remask, probabilities) == sorted(chosen)


@pytest.mark.parametrize("make", TOYS)
def test_what_is_read_interleaved_is_what_that_scorer_reads(make: Any) -> None:
    toy, given = make(), np.random.default_rng(4).integers(0, 10, 13).tolist()
    catalog, text = installed_catalog(), denoiser(make(), 10).text(np.array(given), 3)
    sums = [0.0]
    for count in range(1, 11):
        first = SequenceScorer(catalog.scorer("interleaved"), catalog.selector(f"first-{count}"))
        sums.append(count * drive(first.score(text), toy.read).value)
    own = np.exp(np.diff(sums))
    for threshold in own * 1.0001:
        remask = Remask(read="interleaved", threshold=threshold, rounds=1)
        revised, nfe = revise(toy, given, 3, remask)
        [one] = revised.revisions
        assert [token.position for token in one.tokens] == np.flatnonzero(own < threshold).tolist()
        assert one.nfe == nfe


def test_a_text_may_be_compared_by_the_requests_own_scorer() -> None:
    accepted = set()
    for seed in range(6):
        given = np.random.default_rng(seed).integers(0, 10, 14).tolist()
        settings: Any = {"threshold": 0.6, "rounds": 1}
        revised, _ = revise(ToyPredictor(), given, 3, Remask(**settings, accept="score"))
        [one] = revised.revisions
        before, after = (score_of(ToyPredictor(), ids, 3) for ids in (given, told(given, one)))
        assert (one.score_before, one.score_after) == pytest.approx((before, after), abs=1e-5)
        assert one.is_accepted == (after > before)
        accepted.add(one.is_accepted)
    assert accepted == {True, False}


def told(ids: list[int], revision: Any) -> list[int]:
    new = list(ids)
    for token in revision.tokens:
        new[3 + token.position] = token.new
    return new


@pytest.mark.parametrize(
    "settings",
    [
        {"read": "interleaved", "accept": "always"},
        {"read": "interleaved", "threshold": 0.6, "accept": "score"},
    ],
)
def test_its_settings_conform(settings: Any) -> None:
    check_reviser(Remask(**settings))
