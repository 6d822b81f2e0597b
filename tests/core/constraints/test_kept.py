"""What is kept within a number of bytes."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from dise_core import LLM, Read, Reading, SamplingParams
from dise_core.constraints import orders
from dise_core.constraints.automaton import Automaton
from dise_core.constraints.building import Source, Stop, build
from dise_core.constraints.kept import Kept
from dise_core.constraints.tokens import TokenAutomaton
from dise_core.testing.toy_model import ToyPredictor
from tests.word_tokens import WordTokenizer, tokens_of


@dataclass(eq=False)
class Value:
    """So many bytes."""

    num_bytes: int


def test_values_are_kept_by_their_bytes_the_last_used_ones() -> None:
    kept = Kept(100)
    for name in "abcd":
        kept.put(name, Value(30))
        assert kept.get(Value, "a") is not None
    assert kept.get(Value, "b") is None
    assert [kept.get(Value, name) is not None for name in "acd"] == [True] * 3
    assert kept.num_bytes == kept.num_bytes_alive == 90


def test_values_of_two_kinds_may_have_one_key() -> None:
    kept = Kept(300)
    kept.put("a", Value(30))
    assert kept.get(Shrinking, "a") is None
    kept.put("a", Shrinking())
    assert kept.get(Shrinking, "a") is not None
    assert kept.get(Value, "a") is not None


def test_a_value_that_grows_drops_others_when_the_next_comes() -> None:
    kept = Kept(100)
    grown = Value(10)
    kept.put("a", Value(40))
    kept.put("b", grown)
    grown.num_bytes = 90
    kept.put("c", Value(5))
    assert kept.get(Value, "a") is None
    assert kept.num_bytes == 95


def test_what_is_in_use_is_found_though_it_is_too_large_to_keep() -> None:
    kept = Kept(100)
    huge = Value(500)
    kept.put("huge", huge)
    assert (kept.num_bytes, kept.num_bytes_alive) == (0, 500)
    assert kept.get(Value, "huge") is huge
    there = weakref.ref(huge)
    del huge
    gc.collect()
    assert there() is None
    assert kept.get(Value, "huge") is None


class Shrinking:
    """Tells fewer bytes at each look, as where another thread drops a table meanwhile."""

    def __init__(self) -> None:
        self.left = 190

    @property
    def num_bytes(self) -> int:
        self.left -= 90
        return max(self.left, 10)


def test_a_value_that_shrinks_meanwhile_is_dropped_once() -> None:
    kept = Kept(50)
    kept.put("a", Shrinking())
    assert kept.get(Shrinking, "a") is None


def test_what_is_alive_is_counted_while_others_come_and_go() -> None:
    kept = Kept(1 << 20)
    done, interval = threading.Event(), sys.getswitchinterval()

    def put() -> None:
        for number in range(20_000):
            kept.put(number, Value(1 << 16))
        done.set()

    thread = threading.Thread(target=put)
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        while not done.is_set():
            assert kept.num_bytes_alive >= 0
    finally:
        sys.setswitchinterval(interval)
        thread.join()


def test_an_automaton_over_tokens_counts_all_its_tables() -> None:
    predictor = ToyPredictor()
    model = predictor.tokenizer, predictor.info.special, (), predictor.info.vocab_size
    automaton = build(Source("[a-c]{1,40}"))
    tokens = TokenAutomaton(automaton, *model)
    before = tokens.num_bytes
    assert before >= automaton.next.nbytes
    tokens.maps(tokens.completion)
    tables = [value for value in vars(tokens).values() if hasattr(value, "nbytes")]
    own = [table for table in tables if table.base is not automaton.table]
    held = sum(table.nbytes for table in own if table is not tokens.completion)
    assert tokens.num_bytes == held + automaton.num_bytes + sum(x.nbytes for x in tokens._exact)


def test_a_constraint_is_built_once_for_requests_of_any_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sources: list[Source] = []

    def counted(source: Source, stop: Stop | None) -> Automaton:
        sources.append(source)
        return build(source, stop)

    monkeypatch.setattr(orders, "build", counted)
    llm = LLM(ToyPredictor())
    settings = {"constraint": "regex", "constraint_settings": {"regex": "[a-e]{1,3}"}}
    for length in (8, 8, 12):
        params = SamplingParams.model_validate({**settings, "max_tokens": length})
        llm.generate("ab", params)
    assert len(sources) == 1


def test_constraints_of_prompts_that_wait_or_are_done_are_not_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = Kept(0)
    monkeypatch.setattr(orders, "KEPT", kept)
    model, held = ToyPredictor(), list[int]()

    def read(reads: Sequence[Read]) -> list[Reading]:
        held.append(kept.num_bytes_alive)
        return ToyPredictor.read(model, reads)

    monkeypatch.setattr(model, "read", read)
    forms = [{"regex": f"[a-e]{{1,40}}{letter}"} for letter in "abcde"]
    params = [
        SamplingParams(max_tokens=4, constraint="regex", constraint_settings=form) for form in forms
    ]
    LLM(model, max_num_seqs=1).generate(["ab"] * 5, params)
    assert held[0] > 0
    assert max(held) < 2.5 * held[0]


class CountedTokenizer(WordTokenizer):
    """Counts the tokens whose bytes it was asked for."""

    num_read = 0

    def token_bytes(self, token_id: int) -> bytes | None:
        self.num_read += 1
        return super().token_bytes(token_id)


def test_a_vocabulary_is_read_once_whatever_is_never_written() -> None:
    words = CountedTokenizer([b"a" * length for length in range(1, 500)])
    tokens_of("a{1,9}", words)
    assert words.num_read >= 499
    words.num_read = 0
    for unwritten in ((1,), (2, 3), (4,)):
        tokens_of("a{1,9}", words, unwritten)
    assert words.num_read < 100
