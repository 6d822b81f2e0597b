"""The programme beside a list of all texts."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from dise_core.constraints.programme import Weighted, best, drawn
from dise_core.constraints.tokens import TokenAutomaton
from dise_core.errors import PlanError
from tests import word_tokens
from tests.word_tokens import WordTokenizer

WORDS = WordTokenizer([b"a", b"b", b"c", b"ab", b"bc", b"abc", b"aa", b"cc"])
EXPRESSIONS = ["(ab|c)*", "a(b|bc)?c*", "(a|b){2,4}", "abcabc|c", "(abc)+", "a?b?c?"]


def tokens_of(expression: str) -> TokenAutomaton:
    return word_tokens.tokens_of(expression, WORDS)


def random_rows(
    generator: np.random.Generator, num_rows: int, num_candidates: int
) -> list[Weighted]:
    return [
        (
            generator.permutation(WORDS.vocab_size)[:num_candidates].astype(np.int64),
            generator.choice(generator.normal(size=4), num_candidates),  # with ties
        )
        for _ in range(num_rows)
    ]


def valid_texts(expression: str, rows: list[Weighted]) -> dict[tuple[int, ...], float]:
    """Return the weight of each valid text, by its columns: words, then nothing but end tokens."""
    import re

    texts = {}
    for columns in itertools.product(*(range(len(ids)) for ids, _ in rows)):
        ids = [int(row[0][column]) for row, column in zip(rows, columns, strict=True)]
        length = ids.index(WORDS.end) if WORDS.end in ids else len(ids)
        is_ended = all(token == WORDS.end for token in ids[length:]) and WORDS.mask not in ids
        if is_ended and re.fullmatch(expression, WORDS.decode(np.array(ids[:length], int))):
            texts[columns] = sum(row[1][column] for row, column in zip(rows, columns, strict=True))
    return texts


@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize("seed", range(25))
def test_the_best_text_is_that_of_all_texts(expression: str, seed: int) -> None:
    generator = np.random.default_rng(seed)
    tokens = tokens_of(expression)
    rows = random_rows(generator, 1 + seed % 5, (10, 10, 10, 6, 5)[seed % 5])
    texts = valid_texts(expression, rows)
    if not texts:
        with pytest.raises(PlanError, match="no text of these candidates"):
            best(tokens, tokens.start, rows, tokens.accepting)
        return
    columns = best(tokens, tokens.start, rows, tokens.accepting)
    assert tuple(columns) in texts
    assert texts[tuple(columns)] == pytest.approx(max(texts.values()), abs=1e-12)


def test_ties_go_to_the_lower_token() -> None:
    tokens = tokens_of("(a|b|c)*")
    row = (np.array([2, 1, WORDS.end, 0]), np.zeros(4))
    columns = best(tokens, tokens.start, [row, row], tokens.accepting)
    assert columns.tolist() == [3, 3]


@pytest.mark.parametrize("expression", EXPRESSIONS[:3])
def test_texts_are_drawn_in_proportion(expression: str) -> None:
    """Chi-square below its mean plus 4.5 deviations: a false alarm in less than one of 10,000."""
    generator = np.random.default_rng(7)
    tokens = tokens_of(expression)
    rows = random_rows(generator, 3, 10)
    texts = {columns: math.exp(weight) for columns, weight in valid_texts(expression, rows).items()}
    num_draws = 2000
    counts = Counter(
        tuple(drawn(tokens, tokens.start, rows, tokens.accepting, generator.random(3)).tolist())
        for _ in range(num_draws)
    )
    assert counts.keys() <= texts.keys()
    expected = {columns: num_draws * p / sum(texts.values()) for columns, p in texts.items()}
    frequent = {columns: mean for columns, mean in expected.items() if mean >= 5}
    chi_square = sum((counts[columns] - mean) ** 2 / mean for columns, mean in frequent.items())
    assert chi_square < len(frequent) + 4.5 * math.sqrt(2 * len(frequent))
    assert len(frequent) > 3


def test_a_draw_at_the_end_of_the_interval_is_a_valid_text() -> None:
    tokens = tokens_of("a|b")
    row = (np.array([0, 1, 2]), np.array([0.1, 0.2, 5.0]))
    [column] = drawn(tokens, tokens.start, [row], tokens.accepting, np.array([1 - 2**-53]))
    assert column == 1
