"""The bytes that each token of a tokenizer spells."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from dise_core.models.pieces import BROKEN

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

NUM_TRIED, TRIED_LENGTH = 64, 8
"""Texts of random tokens with which spellings are checked, and their lengths."""

CLEANED = "a . b , c ? d ! do n't i 'm it 's we 've you 're"
"""A text whose spaces some tokenizers clean up."""

PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
OTHERS = [byte for byte in range(256) if byte not in PRINTABLE]
LETTERS = {chr(byte): byte for byte in PRINTABLE} | {
    chr(256 + index): byte for index, byte in enumerate(OTHERS)
}
"""GPT-2's letters: printable bytes are themselves, the others follow U+0100 in order."""


def of_letters(name: str) -> bytes:
    """Return the bytes of GPT-2's letters; a name that has others is its own text."""
    is_spelled = all(letter in LETTERS for letter in name)
    return bytes(LETTERS[letter] for letter in name) if is_spelled else name.encode()


def of_piece(name: str) -> bytes:
    """Return a SentencePiece's bytes: a byte by name, or a text with ▁ for spaces."""
    byte = re.fullmatch("<0x([0-9A-F]{2})>", name)
    return bytes([int(byte[1], 16)]) if byte else name.replace("▁", " ").encode()


def of_word(name: str) -> bytes:
    """Return the bytes of a word, which spaces part."""
    return f" {name}".encode()


def spellings(tokenizer: PreTrainedTokenizerFast) -> tuple[dict[int, bytes], bool]:
    """Return the bytes of each token that was not added, and whether texts lose a first
    space: by the first way to spell under which random tokens join to what is decoded;
    else none.
    """
    added = tokenizer.added_tokens_decoder
    names = {i: name for name, i in tokenizer.get_vocab().items() if name and i not in added}
    for spell in (of_letters, of_piece, of_word):
        tokens = {token_id: spell(name) for token_id, name in names.items()}
        for drops_first_space in (False, True):
            if tokens and _agrees(tokenizer, tokens, drops_first_space):
                return tokens, drops_first_space
    return {}, False


def _agrees(
    tokenizer: PreTrainedTokenizerFast, tokens: dict[int, bytes], drops_first_space: bool
) -> bool:
    """Return whether tokens that spell whole characters, random or of a text, join to
    what is decoded. Those of several spaces, of which decoders may drop more than one,
    are tried alone.
    """
    texts = {i: data.decode(errors="replace") for i, data in sorted(tokens.items())}
    whole_ids = [token_id for token_id, text in texts.items() if BROKEN not in text]
    drawn = np.random.default_rng(0).choice(whole_ids, (NUM_TRIED, TRIED_LENGTH)).tolist()
    drawn += [[token_id] for token_id in whole_ids if tokens[token_id].startswith(b"  ")]
    cleaned = tokenizer.backend_tokenizer.encode(CLEANED, add_special_tokens=False).ids
    drawn.append([token_id for token_id in cleaned if token_id in tokens])
    for ids in drawn:
        joined = b"".join(tokens[token_id] for token_id in ids).decode()
        text = joined.removeprefix(" ") if drops_first_space else joined
        if text != tokenizer.decode(ids, skip_special_tokens=True):
            return False
    return True
