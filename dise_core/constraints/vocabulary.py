"""A model's tokens as bytes, and those that complete any beginning of a valid text."""

import sys
from collections import Counter
from dataclasses import dataclass

import numpy as np

from dise_core.arrays import Ids, Mask
from dise_core.constraints.automaton import Automaton, States, distances
from dise_core.constraints.kept import KEPT
from dise_core.models.tokenizer import Tokenizer

MAX_BYTES, MAX_LONGER = 12, 128
"""Of a completion token; tokens of several bytes among them."""

PER_SPELLING = 64
"""Bytes that Python takes for a spelling and its id, besides its own."""

Spellings = dict[bytes, int]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Vocabulary:
    """The tokens of known bytes. spellings: the lowest id of each token's bytes."""

    spellings: Spellings
    num_bytes: int


def vocabulary_of(tokenizer: Tokenizer, vocab_size: int) -> Vocabulary:
    """Return the vocabulary of a model, made now unless it is kept."""
    key = tokenizer, vocab_size
    vocabulary = KEPT.get(Vocabulary, key)
    if vocabulary is None:
        vocabulary = _make(tokenizer, vocab_size)
        KEPT.put(key, vocabulary)
    return vocabulary


def _make(tokenizer: Tokenizer, vocab_size: int) -> Vocabulary:
    pairs = ((tokenizer.token_bytes(token_id), token_id) for token_id in range(vocab_size))
    spellings: Spellings = {}
    for data, token_id in pairs:
        if data:
            spellings.setdefault(data, token_id)
    num_bytes = sum(map(len, spellings)) + PER_SPELLING * len(spellings)
    return Vocabulary(spellings, sys.getsizeof(spellings) + num_bytes)


def completion_tokens(automaton: Automaton, spellings: Spellings, every_length: bool) -> Ids:
    """Return the ids of the tokens along a shortest way, in bytes, from each state to
    acceptance: its bytes, and the most useful of their first strings. every_length: with
    one byte for each two states that bytes join, so that texts of as many bytes as are
    possible can be made.
    """
    spelled = np.isin(np.arange(256), list(b"".join(spellings)))
    single = np.array([spellings.get(bytes([byte]), -1) for byte in range(256)])
    first = _first_bytes(automaton, spelled)
    used = first[first >= 0]
    if every_length:
        sources, data = np.nonzero((automaton.next != automaton.dead) & (single >= 0))
        joined = sources * len(automaton.next) + automaton.next[sources, data]
        used = np.union1d(used, data[np.unique(joined, return_index=True)[1]])
    tally: Counter[int] = Counter()
    for way, count in _ways(automaton, first).items():
        for length in range(2, len(way) + 1):
            if (token_id := spellings.get(way[:length])) is not None:
                tally[token_id] += count * (length - 1)
    longer = sorted(tally, key=lambda token_id: (-tally[token_id], token_id))[:MAX_LONGER]
    return np.union1d(single[used][single[used] >= 0], longer).astype(np.int64)


def _first_bytes(automaton: Automaton, spelled: Mask) -> States:
    """Return the first byte of a shortest spelled way from each state; -1 for none."""
    live = (automaton.next != automaton.dead) & spelled
    sources, _ = np.nonzero(live)
    distance = distances(automaton.accepting, automaton.next[live], sources.astype(np.int32))
    far = np.where(distance < 0, len(distance), distance)
    ahead = np.where(live, far[automaton.next], len(distance))
    return np.where(distance > 0, ahead.argmin(axis=1), -1).astype(np.int32)


def _ways(automaton: Automaton, first: States) -> Counter[bytes]:
    """Return how many states have each text ahead of them, of up to MAX_BYTES bytes."""
    everywhere = np.arange(len(first))
    behind = np.where(first < 0, automaton.dead, automaton.next[everywhere, first])
    state, columns = everywhere, []
    for _ in range(MAX_BYTES):
        columns.append(first[state])
        state = behind[state]
    ahead = np.stack(columns, axis=1)
    lengths = (ahead >= 0).sum(axis=1)
    rows = zip(ahead.astype(np.uint8), lengths, strict=True)
    return Counter(row[:length].tobytes() for row, length in rows)
