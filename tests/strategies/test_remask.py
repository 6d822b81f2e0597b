"""Remask against a loop that runs the toy model one text at a time."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dise_core import (
    LLM,
    BlockCausal,
    Denoiser,
    Evaluation,
    Generation,
    InputError,
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
    {"threshold": 0.6, "max_tokens": 3, "widen": 1, "accept": "always", "rounds": 2},
    {"threshold": 1.0, "widen": 2, "rounds": 1},
]


def log_softmax(logits: Any) -> list[float]:
    total = math.log(sum(math.exp(x - max(logits)) for x in logits)) + max(logits)
    return [float(x) - total for x in logits]


def predicted(toy: ToyPredictor, ids: list[int]) -> list[list[float]]:
    """The log-probabilities at each position; a block-causal text is completed to its border."""
    block = toy.info.block_length
    more = 0 if block is None else -len(ids) % block
    return [log_softmax(row) for row in toy.logits(np.array(ids + [END] * more))[: len(ids)]]


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
        masked = {
            near
            for at in doubted[: remask.max_tokens]
            for near in range(at - remask.widen, at + remask.widen + 1)
            if start <= near < len(ids)
        }
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


def cases() -> list[Any]:
    return [
        pytest.param(make, settings, seed, id=f"{kind}-{index}-{seed}")
        for kind, make in zip(("full", "blocks"), TOYS, strict=True)
        for index, settings in enumerate(SETTINGS)
        for seed in range(6)
    ]


@pytest.mark.parametrize(("make", "settings", "seed"), cases())
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


PROBABILITIES = st.sampled_from([0.05, 0.3, 0.62, 0.97])
"""No two of them differ by as much as two others."""

PLACES = st.tuples(PROBABILITIES, st.sampled_from([4, 7]), PROBABILITIES, st.none() | PROBABILITIES)
"""p of the token that stands there, which is 4, the first candidate, its p, and p when written."""

CAPS = {
    "max_tokens": st.integers(1, 5),
    "share": st.sampled_from([0.1, 0.5, 1.0]),
    "widen": st.integers(0, 2),
}


def doubted(remask: Remask, places: list[Any]) -> list[int]:
    """What is masked of a response of which the report and the writing are made by hand; on a model
    whose mask is the likeliest everywhere.
    """
    toy, start = ToyPredictor(), 3
    own, ids, first, written = zip(*places, strict=True)
    writer = denoiser(toy, len(places))
    text = writer.text(np.array([1] * start + [4] * len(places)), start)
    writing = Writing.of(text.ids)
    writing.logprobs[start:] = np.log(np.array(written, float))
    top_ids, certain = np.array([[MASK, token] for token in ids]), np.zeros(len(places))
    top = np.stack([certain, np.log(first)], axis=1)
    report = TokenReport(np.log(own).astype(np.float32), top_ids, top.astype(np.float32))
    text = replace(text, writing=writing)
    generation = Generation(text, Evaluation(Score.of_nothing(), report))
    [*revisions] = drive(remask.revise(generation, writer, scorer()), toy.read).revisions
    return [token.position for revision in revisions for token in revision.tokens]


@pytest.mark.parametrize("detector", ["low-prob", "other-token", "drop"])
@given(places=st.lists(PLACES, min_size=1, max_size=14), caps=st.fixed_dictionaries(CAPS))
def test_each_detector_doubts_by_its_rule_the_most_doubted_first_ties_leftmost(
    detector: Any, places: list[Any], caps: dict[str, Any]
) -> None:
    threshold = {"low-prob": 0.62001, "other-token": 0.5, "drop": 0.3}[detector]
    keys: dict[int, float] = {}
    for at, (own, first, other, written) in enumerate(places):
        if detector == "low-prob" and own < threshold:
            keys[at] = own
        if detector == "other-token" and first != 4 and other > threshold:
            keys[at] = 1 - other
        if detector == "drop" and written is not None and written - own > threshold:
            keys[at] = own - written
    most = min(caps["max_tokens"], max(1, math.floor(caps["share"] * len(places))))
    chosen = sorted(keys, key=lambda at: (round(keys[at], 5), at))[:most]
    widen = caps["widen"]
    masked = {near for at in chosen for near in range(at - widen, at + widen + 1)}
    remask = Remask(detector=detector, threshold=threshold, rounds=1, **caps)
    assert doubted(remask, places) == sorted(masked & set(range(len(places))))


def test_the_threshold_is_the_detectors_own_where_none_is_named() -> None:
    names: Any = ("low-prob", "other-token", "drop")
    assert [Remask(detector=name).threshold for name in names] == [0.9, 0.9, 0.3]
    assert Remask(detector="drop", threshold=0.9).threshold == 0.9


@pytest.mark.parametrize(("most", "widen"), [(1, 0), (2, 1)])
def test_no_position_is_masked_in_more_rounds_than_it_may_be(most: int, widen: int) -> None:
    often = 0
    for seed in range(6):
        given = np.random.default_rng(seed).integers(0, 10, 14).tolist()
        settings: Any = {"threshold": 1.0, "max_tokens": 2, "accept": "always", "widen": widen}
        free, held = (
            [
                [token.position for token in one.tokens]
                for one in revise(ToyPredictor(), given, 3, remask)[0].revisions
            ]
            for remask in (Remask(**settings), Remask(**settings, per_position=most))
        )
        assert np.bincount(np.concatenate(held)).max() <= most
        assert widen or all(len(masked) == 2 for masked in held), "the next doubted take the room"
        often += np.bincount(np.concatenate(free)).max() > most
    assert often, "a test in which nothing is held back tests nothing"


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
        settings: Any = {"threshold": 0.6, "rounds": 1, "widen": 1}
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


def test_a_drop_needs_a_record_of_the_writing() -> None:
    with pytest.raises(InputError, match="'drop' needs a record of how") as error:
        revise(ToyPredictor(), [1, 2, 3, 4], 2, Remask(detector="drop"))
    assert error.value.parameter == "reviser_settings"


def test_a_comparison_by_how_texts_were_written_is_refused_before_anything_is_written() -> None:
    class Unread(ToyPredictor):
        def read(self, reads: Any) -> Any:
            raise AssertionError("a pass was made")

    params = SamplingParams(
        scorer="written", reviser="remask", reviser_settings={"accept": "score"}, max_tokens=4
    )
    with pytest.raises(InputError, match="what is written again is always surer"):
        LLM(Unread()).generate("abc", params)


@pytest.mark.parametrize(
    "settings",
    [
        {"detector": "other-token", "threshold": 0.3},
        {"read": "interleaved", "accept": "always"},
        {"read": "interleaved", "detector": "other-token", "threshold": 0.3, "accept": "score"},
    ],
)
def test_its_settings_conform(settings: Any) -> None:
    check_reviser(Remask(**settings))
