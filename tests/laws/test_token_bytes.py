"""The bytes of single tokens, joined, are the text, whatever the tokenizer."""

from __future__ import annotations

import tracemalloc
from functools import cache

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from dise_adapters.checkpoint.tokenizer import FastTokenizer
from dise_adapters.embedded import CountdownPredictor, WordProblemsPredictor
from tests.laws.test_pieces import ENDS, backend, texts, tokenizer

ADDED = "<tool>"
SPACED = ["sentencepiece", "undecoded", "word-problems"]
"""Kinds whose texts lose a first space."""

KINDS = ["byte-level", "metaspace", "countdown", *SPACED]
UNKNOWN = ["wordpiece", "cleaned", "replaced", "stripped", "tidy"]

FORCED = "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"


@cache
def made(kind: str) -> FastTokenizer:
    """Return a tokenizer of that kind, with a token added that is not special."""
    if kind == "countdown":
        return FastTokenizer.from_folder(CountdownPredictor.folder())
    if kind == "word-problems":
        return FastTokenizer.from_folder(WordProblemsPredictor.folder())
    if kind in UNKNOWN[:2]:
        return tokenizer(kind)
    trained = backend("byte-level" if kind in ("byte-level", "tidy") else "sentencepiece")
    if kind == "metaspace":
        trained.pre_tokenizer = pre_tokenizers.Metaspace()
        trained.decoder = decoders.Sequence(
            [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="never")]
        )
    elif kind == "undecoded":
        trained.decoder = None
    elif kind == "stripped":  # of each token, since none have been joined
        trained.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Strip(" ", 1, 0)])
    elif kind == "replaced":  # across tokens
        trained.decoder = decoders.Sequence([decoders.Fuse(), decoders.Replace("t▁", "")])
    trained.add_tokens([AddedToken(ADDED, special=False)])
    tidy = {"clean_up_tokenization_spaces": kind == "tidy", FORCED: kind == "tidy"}
    return FastTokenizer(PreTrainedTokenizerFast(tokenizer_object=trained, **tidy))


def size(kind: str) -> int:
    return len(made(kind)._tokenizer)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=60)
def test_the_bytes_of_any_tokens_joined_are_their_text(kind: str, data: st.DataObject) -> None:
    subject = made(kind)
    known = [token_id for token_id in range(size(kind)) if subject.token_bytes(token_id)]
    whole = [i for i in known if (subject.token_bytes(i) or b"").isascii()]
    drawn = st.lists(st.sampled_from(whole), max_size=30) | st.lists(st.sampled_from(known))
    check(subject, data.draw(drawn))


@pytest.mark.parametrize("kind", ["byte-level", "sentencepiece", "metaspace"])
@given(text=texts)
@settings(max_examples=60)
def test_the_bytes_of_a_text_are_those_of_its_tokens(kind: str, text: str) -> None:
    check(made(kind), made(kind).encode(text).tolist())


def check(subject: FastTokenizer, ids: list[int]) -> None:
    joined = b"".join(subject.token_bytes(token_id) or b"" for token_id in ids)
    try:
        text = joined.decode()
    except UnicodeDecodeError:
        assume(False)
    if subject.drops_first_space:
        assume(not text.startswith("  "))
        text = text.removeprefix(" ")
    assert text == subject.decode(np.array(ids, np.int64))


@pytest.mark.parametrize("kind", KINDS)
def test_all_but_added_tokens_spell_bytes(kind: str) -> None:
    subject = made(kind)
    special = set(subject._tokenizer.all_special_ids)
    special |= {subject.id_of(end) for end in ENDS}
    unknown = {i for i in range(size(kind) + 2) if subject.token_bytes(i) is None}
    assert unknown >= {size(kind), size(kind) + 1}
    assert special - {None} <= unknown
    assert len(unknown) <= len(special) + 8
    assert subject.drops_first_space == (kind in SPACED)


@pytest.mark.parametrize("kind", [*KINDS, *UNKNOWN])
def test_every_name_of_the_vocabulary_has_its_id(kind: str) -> None:
    subject = made(kind)
    vocabulary = subject._tokenizer.get_vocab()
    assert vocabulary.keys() >= {*subject.added_tokens}
    assert {name: subject.id_of(name) for name in vocabulary} == vocabulary
    assert subject.id_of("a name that no vocabulary has") is None


def test_a_name_is_looked_up_without_a_copy_of_the_vocabulary() -> None:
    words = {f"word {number}": number for number in range(20_000)}
    subject = FastTokenizer(PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words))))
    tracemalloc.start()
    assert subject.id_of("word 7") == 7
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**14, "at 20,000 names of 50 bytes and more"


@pytest.mark.parametrize("kind", UNKNOWN)
def test_a_decoder_that_looks_at_several_tokens_says_nothing(kind: str) -> None:
    assert all(made(kind).token_bytes(token_id) is None for token_id in range(size(kind)))
    assert not made(kind).drops_first_space
