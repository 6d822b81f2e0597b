"""The programme beside a list of all texts."""

from __future__ import annotations

import bisect
import copy
import itertools
import math
import re
from functools import partial
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dise_core.constraints import programme
from dise_core.constraints.programme import Choices, best, drawn
from dise_core.constraints.tokens import TokenAutomaton
from dise_core.errors import PlanError
from tests import word_tokens
from tests.word_tokens import WordTokenizer

WORDS = WordTokenizer([b"a", b"b", b"c", b"ab", b"bc", b"abc", b"aa", b"cc"])
EXPRESSIONS = ["(ab|c)*", "a(b|bc)?c*", "(a|b){2,4}", "abcabc|c", "(abc)+", "a?b?c?"]
Texts = dict[tuple[int, ...], float]
tokens_of = partial(word_tokens.tokens_of, words=WORDS)


def too_wide(tokens: TokenAutomaton) -> TokenAutomaton:
    """Return the automaton as one that has too many states to keep maps."""
    wide = copy.copy(tokens)
    wide._rows, wide._num_rows, wide._max_rows = wide._rows * 0 - 1, 0, 0
    return wide


def random_choices(
    generator: np.random.Generator, num_tokens: int, num_candidates: int, share_open: float = 1.0
) -> Choices:
    """Return a text of words that are open or given, with ties and tokens that are there twice."""
    ids = generator.integers(0, WORDS.end + 1, num_tokens)
    is_open = generator.random(num_tokens) < share_open
    shape = int(is_open.sum()), num_candidates
    candidates = generator.integers(0, WORDS.vocab_size, shape)
    return Choices(ids, is_open, candidates, generator.integers(-3, 3, shape).astype(float))


def valid_texts(expression: str, choices: Choices) -> Texts:
    """Return the weight of each valid text, by its columns: words, then nothing but end tokens."""
    texts, rows = Texts(), choices.candidates.tolist()
    firsts = [[row.index(token) == at for at, token in enumerate(row)] for row in rows]
    for columns in itertools.product(
        *(itertools.compress(itertools.count(), row) for row in firsts)
    ):
        ids = choices.ids.copy()
        ids[choices.is_open] = [row[column] for row, column in zip(rows, columns, strict=True)]
        told = ids.tolist()
        length = told.index(WORDS.end) if WORDS.end in told else len(told)
        is_ended = all(token == WORDS.end for token in told[length:]) and WORDS.mask not in told
        if is_ended and re.fullmatch(expression, WORDS.decode(ids[:length])):
            texts[columns] = float(choices.weights[np.arange(len(columns)), columns].sum())
    return texts


def first_of_best(choices: Choices, texts: Texts) -> tuple[int, ...]:
    """Return the heaviest text; among equals that of the lower token where they first differ."""

    def names(columns: tuple[int, ...]) -> list[int]:
        return [int(row[at]) for row, at in zip(choices.candidates, columns, strict=True)]

    heaviest = max(texts.values())
    return min((text for text, weight in texts.items() if weight == heaviest), key=names)


def drawn_one_by_one(choices: Choices, texts: Texts, uniforms: list[float]) -> tuple[int, ...]:
    """Return the columns that the uniform numbers pick, tokens in order, by the weights of all
    texts with each.
    """
    picked: tuple[int, ...] = ()
    for row, uniform in zip(choices.candidates.tolist(), uniforms, strict=True):
        masses = dict[int, float]()
        for text, weight in texts.items():
            if text[: len(picked)] == picked:
                column = text[len(picked)]
                masses[column] = masses.get(column, 0.0) + math.exp(weight)
        order = sorted(masses, key=lambda column: row[column])
        shares = list(itertools.accumulate(masses[column] for column in order))
        picked += (order[bisect.bisect_right(shares, uniform * shares[-1])],)
    return picked


@given(
    expression=st.sampled_from(EXPRESSIONS),
    seed=st.integers(0, 2**32 - 1),
    num_tokens=st.integers(1, 5),
    num_candidates=st.integers(1, 6),
    share_open=st.sampled_from([0.4, 0.7, 1.0]),
    few=st.sampled_from([0, programme.FEW]),
    is_wide=st.booleans(),
)
def test_the_best_text_and_a_drawn_one_are_those_of_a_list_of_all_texts(
    expression: str,
    seed: int,
    num_tokens: int,
    num_candidates: int,
    share_open: float,
    few: int,
    is_wide: bool,
) -> None:
    generator = np.random.default_rng(seed)
    tokens = tokens_of(expression)
    tokens = too_wide(tokens) if is_wide else tokens
    choices = random_choices(generator, num_tokens, num_candidates, share_open)
    texts, uniforms = valid_texts(expression, choices), generator.random(len(choices.candidates))
    text = tokens, tokens.start, choices, tokens.accepting
    with patch.object(programme, "FEW", few):
        if not texts:
            with pytest.raises(PlanError, match="no text of these candidates"):
                best(*text)
            return
        assert tuple(best(*text)) == first_of_best(choices, texts)
        one_by_one = drawn_one_by_one(choices, texts, uniforms.tolist())
        assert tuple(drawn(*text, uniforms)) == one_by_one


def test_a_draw_at_the_end_of_the_interval_is_a_valid_text() -> None:
    tokens = tokens_of("a|b")
    row = np.array([[0, 1, 2]]), np.array([[0.1, 0.2, 5.0]])
    choices = Choices(np.zeros(1, np.int64), np.ones(1, np.bool_), *row)
    [column] = drawn(tokens, tokens.start, choices, tokens.accepting, np.array([1 - 2**-53]))
    assert column == 1
