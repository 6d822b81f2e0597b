"""Automata over tokens beside searches over all texts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dise_core.arrays import Mask
from dise_core.constraints import tokens as automata
from dise_core.constraints.tokens import TokenAutomaton
from dise_core.errors import InputError
from tests import word_tokens
from tests.word_tokens import WordTokenizer

BYTES = [bytes([byte]) for byte in range(256)]
LONGER = [b'"name', b'": ', b'": "', b"name", b'"}', b", ", b"true", b"false", b"ab", b" a", b'{"']
WORDS = WordTokenizer([*BYTES, *LONGER])


def tokens_of(
    expression: str, words: WordTokenizer = WORDS, unwritten: tuple[int, ...] = ()
) -> TokenAutomaton:
    return word_tokens.tokens_of(expression, words, unwritten)


def searched(tokens: TokenAutomaton, num_masks: int) -> Mask:
    """Return from which states that many completion tokens end a text, by a search from each."""
    found = []
    for state in range(tokens.num_states):
        states = {state}
        for _ in range(num_masks):
            states = {
                int(behind)
                for one in states
                for behind in tokens.steps(tokens.completion, np.array([one]))[:, 0]
            }
        found.append(any(tokens.accepting[one] for one in states))
    return np.array(found)


@pytest.mark.parametrize("unwritten", [(), (WORDS.end,)])
@pytest.mark.parametrize("expression", ["(red|green|greenish)", 'a?"[ab]*"', "(ab){2,9}", "(aa)*"])
def test_feasible_states_are_those_of_a_search(expression: str, unwritten: tuple[int, ...]) -> None:
    tokens = tokens_of(expression, unwritten=unwritten)
    for num_masks in (0, 7, 3, 12, 1):
        assert np.array_equal(tokens.feasible(num_masks), searched(tokens, num_masks))


def test_without_an_end_token_every_length_that_bytes_can_make_is_possible() -> None:
    tokens = tokens_of("x[a-z]{2,5}|(yz)*", unwritten=(WORDS.end,))
    possible = [n for n in range(12) if tokens.feasible(n)[tokens.start]]
    assert possible == [0, 2, 3, 4, 5, 6, 8, 10]
    assert WORDS.end not in tokens.completion


def test_the_fewest_tokens_are_counted_with_longer_ones() -> None:
    tokens = tokens_of(r'\{"name": (true|false)\}')
    assert tokens.least == len([b'{"', b"name", b'": ', b"true", b"}"])
    assert not tokens.feasible(4)[tokens.start]
    assert tokens.feasible(5)[tokens.start]
    assert tokens.feasible(9)[tokens.start]


def test_through_given_positions_lead_only_their_tokens() -> None:
    tokens = tokens_of("a[bc]*d")
    final, given, first_open = tokens.accepting, np.zeros(4, np.bool_), np.arange(4) == 0
    texts = {text: np.array([*text.encode()]) for text in ("abcd", "adcd", "dbcd")}
    assert tokens.through(final, texts["abcd"], given)[tokens.start]
    assert not tokens.through(final, texts["adcd"], given)[tokens.start]
    assert not tokens.through(final, texts["dbcd"], given)[tokens.start]
    assert tokens.through(final, texts["dbcd"], first_open)[tokens.start]
    masks = np.full(3, -1), np.ones(3, np.bool_)
    assert np.array_equal(tokens.through(final, *masks), tokens.feasible(3))


def test_end_tokens_follow_a_whole_text_and_one_another_alone() -> None:
    tokens = tokens_of("ab?")
    a, b, end, mask = ord("a"), ord("b"), WORDS.end, WORDS.mask
    texts = {(a,): tokens.automaton.run(b"a"), (a, b): tokens.automaton.run(b"ab")}
    texts |= {(a, end): tokens.end, (a, b, end, end): tokens.end}
    texts |= dict.fromkeys([(end,), (a, end, b), (mask,), (a, mask), (b, a)], tokens.dead)
    for ids, state in texts.items():
        assert tokens.after(np.array(ids)) == state
    behind = tokens.maps(np.array([a, b, end, mask]))
    for state, (row, token) in itertools.product(
        range(tokens.num_states), enumerate((a, b, end, mask))
    ):
        assert behind[row, state] == tokens.after(np.array([token]), state)


def test_maps_that_were_handed_out_stay_as_they_are_when_others_take_their_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokens = tokens_of("a[bc]*d")
    ids, states = np.array([ord(letter) for letter in "abcd"]), range(tokens.num_states)
    walked = [[tokens.after(np.array([token]), state) for state in states] for token in ids]
    monkeypatch.setattr(automata, "MAX_KEPT", 3 * tokens.num_states)
    tokens = tokens_of("a[bc]*d")
    kept, rows = tokens.kept_maps(ids[:2])
    other, other_rows = tokens.kept_maps(ids[1:])
    assert kept is not None
    assert other is not None
    assert len(other) <= 3
    assert kept[rows].tolist() == walked[:2]
    assert other[other_rows].tolist() == walked[1:]
    assert tokens.kept_maps(ids)[0] is None
    assert tokens.maps(ids).tolist() == walked


def test_the_first_space_of_a_text_may_be_dropped() -> None:
    words = WordTokenizer([*BYTES, b" a", b"ab", b"  "], drops_first_space=True)
    tokens = tokens_of("ab c", words)
    space, whole = words.words.index(b" a"), words.words.index(b"ab")
    b, c, blank = ord("b"), ord("c"), ord(" ")
    for ids in ([space, b, blank, c], [whole, blank, c], [blank, whole, blank, c]):
        assert tokens.accepting[tokens.after(np.array(ids))]
        assert words.decode(np.array(ids)) == "ab c"
    assert tokens.after(np.array([blank, blank])) == tokens.dead
    assert tokens.is_forced(np.array([space, b, blank, c])).all()


def test_forced_tokens_are_those_without_a_choice() -> None:
    tokens = tokens_of(r'\{"a": (true|tree), "b": [0-9]\}')
    text = [b'{"', b"a", b'": ', b"t", b"r", b"u", b"e", b", ", b'"', b"b", b'": ', b"7", b"}"]
    ids = [WORDS.words.index(word) for word in text] + [WORDS.end] * 2
    free = [index for index, forced in enumerate(tokens.is_forced(np.array(ids))) if not forced]
    assert free == [text.index(b"u"), text.index(b"7")]
    open_end = tokens_of("ab?").is_forced(np.array([ord("a"), WORDS.end, WORDS.end]))
    assert open_end.tolist() == [True, False, True]


def test_a_vocabulary_that_cannot_spell_an_answer_is_refused() -> None:
    words = WordTokenizer([bytes([byte]) for byte in range(32, 127)])
    assert tokens_of("é|eee", words).least == 3
    few = WordTokenizer([b"0", b"1", b"->", b"<answer>"])
    assert tokens_of("<answer>[0-9]->[0-9]", few).least == 4
    for expression, vocabulary in (("é", words), ("<answer>x", few)):
        with pytest.raises(InputError, match="cannot spell any answer that the constraint allows"):
            tokens_of(expression, vocabulary)
    with pytest.raises(InputError, match="does not tell which bytes its tokens spell"):
        tokens_of("a", WordTokenizer([]))
