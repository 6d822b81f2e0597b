"""The tokenizer of the embedded model: every digit, sign and mark is one token."""

from __future__ import annotations

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from ..chat import SPECIAL

DIGITS = list("0123456789")
SIGNS = ["+", "-", "*", "/", "=", ",", "(", ")", "->", "<answer>", "</answer>"]
UNKNOWN = "<|unk|>"
VOCABULARY = {
    token: token_id for token_id, token in enumerate([*DIGITS, *SIGNS, UNKNOWN, *SPECIAL])
}


def build() -> Tokenizer:
    """Return the tokenizer: spaces are dropped, then digits, marks and signs are split off."""
    tokenizer = Tokenizer(models.WordLevel(VOCABULARY, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Replace(Regex(r"\s+"), "")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\d|->|</?answer>|."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([UNKNOWN, *SPECIAL])
    return tokenizer
