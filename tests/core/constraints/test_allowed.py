"""Which tokens may stand at a position, beside the enumeration of all texts."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pytest

from dise_core.constraints import tokens as automata
from dise_core.token_sets import EVERY, TokenSets
from tests import word_tokens
from tests.naive_texts import NaiveTexts
from tests.word_tokens import WordTokenizer

PIECES = ["a", "b", "1", "ab", "b1", "aab", "1b"]
WORDS = WordTokenizer([piece.encode() for piece in PIECES])
tokens_of = partial(word_tokens.tokens_of, words=WORDS)
EXPRESSIONS = ["a(b|1){0,3}1", "(ab|a1b|aab)", "[ab]{0,5}", "ab1b", "a{1,4}b?", "(a|b1){2}1?"]
LONGEST = 7
"""In characters, of the longest text of these expressions, and one more."""


def listed(sets: TokenSets) -> list[set[int]]:
    return [set() if number == EVERY else {*sets.sets[number].tolist()} for number in sets.which]


@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_what_may_stand_in_a_tokens_place_is_what_enumeration_finds(
    expression: str, length: int
) -> None:
    tokens, naive = tokens_of(expression), NaiveTexts(expression, PIECES, "ab1", LONGEST)
    for ids in itertools.product(range(WORDS.end + 1), repeat=length):
        if not naive.is_valid(ids):
            continue
        for cuts in ((), (length,)):
            found = listed(tokens.allowed(np.array(ids), cuts))
            assert found == [naive.allowed([*ids], at, bool(cuts)) for at in range(length)], ids


def test_what_follows_a_cut_says_nothing_of_what_stands_before_it() -> None:
    tokens = tokens_of("[ab]{0,5}")
    whole = np.array([0, 3, 1, WORDS.end])
    found, alone = listed(tokens.allowed(whole, (2, 4))), listed(tokens.allowed(whole[:2], (2,)))
    assert found[:2] == alone
    assert found[:2] != listed(tokens.allowed(whole))[:2]
    assert found[2:] == listed(tokens.allowed(whole))[2:]


def test_what_is_kept_of_levels_stays_within_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens, several = tokens_of("[ab]{0,5}"), list(itertools.product(range(4), repeat=2))
    told = [listed(tokens.allowed(np.array(ids))) for ids in several]
    assert tokens.levels.num_bytes > 2000
    monkeypatch.setattr(automata, "MAX_LEVELS", 2000)
    for ids, sets in zip(several, told, strict=True):
        assert tokens.levels.num_bytes <= 2000
        assert listed(tokens.allowed(np.array(ids))) == sets


def test_a_token_that_may_not_be_written_is_never_allowed() -> None:
    [first, *_] = listed(tokens_of("[ab]{1,2}", unwritten=(1,)).allowed(np.array([0, WORDS.end])))
    assert first == {0, 3}


def test_a_token_that_does_not_fit_may_be_any() -> None:
    assert tokens_of("ab").allowed(np.array([1, 1])).which.tolist() == [EVERY, EVERY]
