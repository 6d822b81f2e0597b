"""The conformance check of tokenizers."""

import numpy as np

from dise_core.arrays import Ids
from dise_core.errors import InputError
from dise_core.models.info import ModelInfo
from dise_core.models.tokenizer import Tokenizer
from dise_core.testing.promises import expect


def check_tokenizer(tokenizer: Tokenizer, vocab_size: int) -> None:
    """Check that texts become ids below vocab_size and the same text again, that other
    ids are another text, and that the bytes of tokens are those of their text.
    """
    added = _encoded(tokenizer, "", vocab_size)
    expect(
        len(added) == 0,
        f"encode must add no special tokens, and makes {added} of an empty text: a "
        "begin-of-text token belongs into start_ids",
    )
    random = np.random.default_rng(0)
    spelled = [
        number
        for number in random.permutation(vocab_size)[:256].tolist()
        if _spells(tokenizer, number, vocab_size)
    ]
    expect(bool(spelled), "encode must take what decode returns of tokens: it refuses all")
    texts = []
    for _ in range(8):
        text = tokenizer.decode(random.choice(spelled, 6))
        texts.append(tokenizer.decode(_encoded(tokenizer, text, vocab_size)))
    expect(
        len(set(texts)) > 1,
        f"decode and encode must tell texts apart: eight of them are all {texts[0]!r:.80}",
    )
    for text in texts:
        ids = _encoded(tokenizer, text, vocab_size)
        again = tokenizer.decode(ids)
        expect(
            again == text,
            f"decode must return the text that encode was given, {text!r:.80}, not {again!r:.80}",
        )
        _check_bytes(tokenizer, ids, text)


def check_special(tokenizer: Tokenizer, info: ModelInfo) -> None:
    """Check that the mask and the end tokens are in the vocabulary, and that no text has
    them.
    """
    tokens = [("end token", end) for end in (*info.special.eos_ids, info.special.eos_id)]
    for role, number in [("mask", info.mask_token_id), *tokens]:
        if number is None:
            continue
        expect(
            0 <= number < info.vocab_size,
            f"the {role} of info.special, {number}, must be in the vocabulary, 0.."
            f"{info.vocab_size - 1}: vocab_size is the width of the rows of logits",
        )
        text = tokenizer.decode(np.array([number]))
        is_special = tokenizer.token_bytes(number) is None
        expect(
            not text or not is_special,
            f"decode must leave special tokens out, and shows the {role}, {number}, as "
            f"{text!r:.80}; or info.special names the wrong id",
        )
        expect(
            not text or not _encodes(tokenizer, text, number),
            f"the {role} of info.special, {number}, is the text {text!r:.80}, which prompts may "
            f"hold: name the id of the model's {role}",
        )


def _encodes(tokenizer: Tokenizer, text: str, number: int) -> bool:
    try:
        return number in tokenizer.encode(text)
    except InputError:
        return False


def _spells(tokenizer: Tokenizer, number: int, vocab_size: int) -> bool:
    """Return whether a token's text can be encoded. A vocabulary without all bytes may
    name tokens by characters that it lacks.
    """
    try:
        return len(_encoded(tokenizer, tokenizer.decode(np.array([number])), vocab_size)) > 0
    except InputError:
        return False


def _encoded(tokenizer: Tokenizer, text: str, vocab_size: int) -> Ids:
    ids: object = tokenizer.encode(text)
    is_ids = isinstance(ids, np.ndarray) and ids.dtype == np.int64 and ids.ndim == 1
    expect(is_ids, f"encode must return ids, int64 [N], not {ids!r:.80}")
    assert isinstance(ids, np.ndarray)
    is_below = bool(((ids >= 0) & (ids < vocab_size)).all())
    expect(is_below, f"encode must return ids in 0..{vocab_size - 1}, not {ids!r:.80}")
    return ids


def _check_bytes(tokenizer: Tokenizer, ids: Ids, text: str) -> None:
    pieces = [tokenizer.token_bytes(number) for number in ids.tolist()]
    spellings = [piece for piece in pieces if piece is not None]
    joined = b"".join(spellings).decode(errors="replace")
    if tokenizer.drops_first_space:
        joined = joined.removeprefix(" ")
    expect(
        len(spellings) < len(pieces) or joined == text,
        f"the bytes of a text's tokens must be those of the text, {text!r:.80}, not {joined!r:.80}",
    )
