"""Selectors that read the text, have settings, and weigh: what they are given, and what counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import PositiveInt

from dise_core import (
    LLM,
    CompletionOutput,
    InputError,
    PluginError,
    SamplingParams,
    Score,
    ScoringParams,
    Selector,
    TokenSequence,
)
from dise_core.arrays import Floats, Ids, Mask
from dise_core.scoring.contract import CheckedSelector
from dise_core.scoring.scorer import Union
from dise_core.scoring.sequence_scorer import Before
from dise_core.testing import ToyPredictor, check_selector
from dise_core.testing.toy_model import END, MASK, SPECIAL, LetterTokenizer
from dise_strategies.selectors.counted import LastK
from tests.guests import with_guests

PROMPT, RESPONSE = [1, 2, 3], [4, 5, 6, 7, 8]


class Late(Selector):
    """Selects every k-th letter behind a mark; later ones count more."""

    mark: str = "e"
    k: PositiveInt = 1

    def select(self, sequence: TokenSequence) -> Mask:
        text = sequence.response_bytes
        start = text.find(self.mark.encode()) + 1
        return sequence.mask_of(sequence.covering(start, len(text))[:: self.k])

    def weights(self, sequence: TokenSequence) -> Floats:
        return self.select(sequence) * (1.0 + np.arange(len(sequence)))


class Given(Selector):
    """Selects the last two tokens, with such weights as a test wants."""

    values: Any

    def select(self, sequence: TokenSequence) -> Mask:
        return sequence.mask_of([-2, -1])

    def weights(self, sequence: TokenSequence) -> Any:
        return self.values


CATALOG = with_guests(selectors={"late": Late, "given": Given})


def text_of(response: list[int], suffix: int = 0) -> TokenSequence:
    ids = np.array([*PROMPT, *response])
    spell = LetterTokenizer().spell
    return TokenSequence(ids, 3, SPECIAL, suffix_length=suffix, spell=spell)


def scored(toy: ToyPredictor, scorer: str = "dise", explain: bool = False, **params: Any) -> Any:
    scoring = ScoringParams(scorer=scorer, **({"selector": "late"} | params))
    llm = LLM(toy, catalog=CATALOG)
    [answer] = llm.score([PROMPT], [RESPONSE], scoring, finished=False, explain=explain)
    return answer.outputs[0]


def logprob(toy: ToyPredictor, ids: list[int], position: int, token: int) -> float:
    logits = toy.logits(np.array(ids))[position]
    return float(logits[token] - np.logaddexp.reduce(logits))


def test_a_text_tells_the_bytes_of_its_tokens_and_the_tokens_of_its_bytes() -> None:
    text = text_of([4, END, MASK, 5, 6], suffix=1)
    assert text.pieces == (b"b", b"c", b"d", b"e", b"", b"", b"f", b"g")
    assert text.response_bytes == b"ef"
    assert text.covering(0, 9).tolist() == [3, 6]


def test_bytes_are_covered_by_all_tokens_that_hold_one_of_them() -> None:
    pieces = (b"??", b"\xe6", b"", b"\x97\xa5a", b"bc", b"", b"d", b"!")
    text = TokenSequence(np.arange(8), 1, suffix_length=1, spell=lambda _: pieces)
    owners = [at for at, piece in enumerate(pieces) for _ in piece][2:-1]
    for start in range(len(owners)):
        for stop in range(start, len(owners) + 2):
            assert text.covering(start, stop).tolist() == sorted(set(owners[start:stop]))


def test_a_text_that_cannot_be_read_says_how_it_could() -> None:
    with pytest.raises(InputError, match=r"made by hand .* give it spell=tokenizer\.spell"):
        _ = TokenSequence(np.arange(3), 1).pieces


def test_tokens_without_known_bytes_have_their_texts_and_special_ones_none() -> None:
    class Silent(LetterTokenizer):
        def token_bytes(self, token_id: int) -> None:
            return None

    assert Silent().spell(np.array([0, 9, END, MASK])) == (b"a", b"j", b"", b"")


def test_a_text_is_spelled_for_those_alone_who_read_it() -> None:
    class Unread(LetterTokenizer):
        def spell(self, ids: Ids) -> tuple[bytes, ...]:
            raise NotImplementedError

    toy = ToyPredictor()
    toy.tokenizer = Unread()
    assert scored(toy, selector="last-2").score.num_positions == 2
    LLM(toy).generate("abc", SamplingParams(max_tokens=4))
    with pytest.raises(Exception, match="NotImplementedError"):
        scored(toy)


def expected(scorer: str, toy: ToyPredictor) -> dict[int, float]:
    """The log-probability of each token of RESPONSE behind f, by its position."""
    whole = [*PROMPT, *RESPONSE]
    values = {}
    for at in (5, 6, 7):
        parity = range(3 + (at - 3) % 2, 8, 2)
        masked = {"dise": range(0), "shadow": range(at, at + 1), "interleaved": parity}[scorer]
        ids = [MASK if place in masked else token for place, token in enumerate(whole)]
        values[at] = logprob(toy, ids, at, whole[at])
    return values


@pytest.mark.parametrize("scorer", ["dise", "shadow", "interleaved"])
def test_the_mean_is_weighted(scorer: str) -> None:
    toy = ToyPredictor()
    values = expected(scorer, toy)
    mean = sum((1 + at) * value for at, value in values.items()) / sum(1 + at for at in values)
    output = scored(toy, scorer, selector_settings={"mark": "f"})
    assert output.score.value == pytest.approx(mean, abs=1e-5)
    assert output.score.positions.tolist() == [*values]
    thinned = scored(toy, scorer, selector_settings={"mark": "f", "k": 2}).score
    pair = (6 * values[5] + 8 * values[7]) / 14
    assert thinned.value == pytest.approx(pair, abs=1e-5)


def test_what_is_written_is_weighted_in_its_mean_alone() -> None:
    llm = LLM(ToyPredictor(), catalog=CATALOG)
    params = SamplingParams(max_tokens=8, scorer="written", selector="late", seed=1)
    [answer] = llm.generate(PROMPT, params)
    output = answer.outputs[0]
    assert output.writing is not None
    at = output.score.positions
    mean = np.average(output.writing.logprobs[at], weights=1.0 + at)
    assert output.score.value == pytest.approx(mean)
    assert output.score.token_probability == pytest.approx(np.exp(mean))
    least = params.model_copy(update={"scorer_settings": {"aggregate": "least"}})
    with pytest.raises(InputError, match="scorer 'written' is no mean over tokens"):
        llm.generate(PROMPT, least)


def test_a_sum_takes_weights_through_its_parts() -> None:
    llm = LLM(ToyPredictor(), catalog=CATALOG)
    params = SamplingParams(max_tokens=8, selector="late", seed=1)
    values = [
        llm.generate(PROMPT, params.model_copy(update={"scorer": name}))[0].outputs[0].score.value
        for name in ("dise+written", "dise", "written")
    ]
    assert values[0] == values[1] + values[2]


def test_a_likelihood_refuses_weights_by_name_before_any_pass() -> None:
    toy, scorer = ToyPredictor(), "mc"
    for selector in ("late", "late+last-2"):
        with pytest.raises(InputError, match=f"scorer '{scorer}' is no mean .* such as 'dise'"):
            scored(toy, scorer, selector=selector)
    params = SamplingParams(max_tokens=8, scorer=scorer, selector="late")
    with pytest.raises(InputError, match=f"scorer '{scorer}' is no mean"):
        LLM(toy, catalog=CATALOG).generate(PROMPT, params)
    assert toy.batches == []


def test_a_union_weighs_by_the_largest_and_parts_without_weights_by_one() -> None:
    text = text_of(RESPONSE)
    parts = (Late(mark="f"), LastK(k=4), Late(mark="g", k=2))
    union = Union(parts=parts)
    naive = [
        max(float(LastK(k=4).select(text)[at]), *(late.weights(text)[at] for late in parts[::2]))
        for at in range(8)
    ]
    weights = union.weights(text)
    assert weights is not None
    assert weights.tolist() == naive == [0, 0, 0, 0, 1, 6, 7, 8]
    assert Union(parts=(LastK(k=1), LastK(k=2))).weights(text) is None
    assert (union.is_weighted, Union(parts=(LastK(k=1),)).is_weighted) == (True, False)


def test_weights_end_where_the_text_ends() -> None:
    text = text_of([*RESPONSE, END])
    before = Before(inner=CheckedSelector(inner=Late()), length=8)
    weights = before.weights(text)
    assert weights is not None
    assert weights.tolist() == [0, 0, 0, 0, 5, 6, 7, 8, 0]
    assert before.is_weighted


@pytest.mark.parametrize(
    ("values", "promise"),
    [
        ([0, 0, 1.0], r"weights, float \[8\], or None, not list"),
        (np.ones(7), r"weights, float \[8\], or None, not an array of float64 \[7\]"),
        (np.ones(8, np.int64), r"not an array of int64 \[8\]"),
        (np.array([0, 0, 0, 0, 0, 0, 1, -1.0]), "finite weights of at least 0"),
        (np.array([0, 0, 0, 0, 0, 0, 1, np.nan]), "finite weights of at least 0"),
        (np.array([0, 0, 0, 0, 0, 0, 1, np.inf]), "finite weights of at least 0"),
        (np.ones(8), "of 0 where its mask is False"),
    ],
)
def test_a_plugins_weights_are_checked(values: Any, promise: str) -> None:
    problem = f"selector 'given' of plugin 'guest' must return .*{promise}"
    with pytest.raises(PluginError, match=problem):
        scored(ToyPredictor(), selector="given", selector_settings={"values": values})


def test_a_text_in_which_nothing_counts_has_no_score() -> None:
    nothing = np.zeros(8, np.float32)
    assert (
        scored(ToyPredictor(), selector="given", selector_settings={"values": nothing}).score.value
        == -np.inf
    )
    assert Score.mean_of(np.ones(2, np.float32), np.arange(2), np.zeros(3)).num_positions == 0


def test_an_explanation_tells_what_each_token_counts() -> None:
    output: CompletionOutput = scored(ToyPredictor(), explain=True, selector_settings={"k": 2})
    explanation = output.explanation
    assert explanation is not None
    value = f"{output.score.value:.4f}"
    mean = "weighted mean of the log-probabilities of 2 tokens"
    assert explanation.formula == f"value = {mean} = {value}"
    tokens = explanation.to_dict()["tokens"]
    assert [(t["position"], t.get("weight")) for t in tokens] == [
        (3, None), (4, 5.0), (5, None), (6, 7.0), (7, None),
    ]  # fmt: skip
    plain = scored(ToyPredictor(), selector="last-2", explain=True).explanation
    assert all("weight" not in token for token in plain.to_dict()["tokens"])


def test_the_kit_lets_a_selector_read() -> None:
    class Negative(Late):
        def weights(self, sequence: TokenSequence) -> Floats:
            return -super().weights(sequence)

    check_selector(Late(mark="f"))
    with pytest.raises(AssertionError, match="weights of at least 0"):
        check_selector(Negative())
