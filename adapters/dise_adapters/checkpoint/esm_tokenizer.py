"""ESM's tokenizer of proteins, which transformers has in Python alone, as a fast one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import EsmTokenizer, PreTrainedTokenizerFast


def esm_tokenizer(slow: EsmTokenizer) -> PreTrainedTokenizerFast:
    """Return the fast tokenizer: a letter is a token, white space is none, and what is
    decoded has no spaces.
    """
    from tokenizers import Regex, Tokenizer, decoders, models
    from tokenizers.pre_tokenizers import Sequence, Split, WhitespaceSplit
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    vocab, unknown = slow.get_vocab(), str(slow.unk_token)
    tokenizer = Tokenizer(models.WordLevel(vocab, unknown))
    names = "|".join(re.escape(name) for name in sorted(vocab, key=len, reverse=True))
    tokenizer.pre_tokenizer = Sequence([WhitespaceSplit(), Split(Regex(names), "isolated")])
    tokenizer.decoder = decoders.Fuse()
    start, end = str(slow.cls_token), str(slow.eos_token)
    tokenizer.post_processor = TemplateProcessing(
        single=[start, "$A", end], special_tokens=[(name, vocab[name]) for name in (start, end)]
    )
    roles = {
        "unk_token": unknown, "cls_token": start, "eos_token": end,
        "pad_token": str(slow.pad_token), "mask_token": str(slow.mask_token),
    }  # fmt: skip
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **roles)
