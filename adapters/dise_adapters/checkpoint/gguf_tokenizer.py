"""The tokenizer of a diffusion model's GGUF file: byte-level BPE with a named split."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dise_core import CheckpointError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BAILING = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
SPLITS = {"qwen2": QWEN, **dict.fromkeys(("bailingmoe", "bailingmoe2", "llada-moe"), BAILING)}
"""Where a text is split before it is encoded, by `tokenizer.ggml.pre`."""

CONTROL, USER_DEFINED, UNUSED = 3, 4, 5
"""Types of tokens: never part of a text, found whole in it, and not there at all."""

ROLES = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding"}


def gguf_tokenizer(metadata: Mapping[str, Any]) -> PreTrainedTokenizerFast:
    """Return the tokenizer and chat template. Raises CheckpointError for other kinds."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
    from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split
    from transformers import PreTrainedTokenizerFast

    kind, pre = (metadata.get(f"tokenizer.ggml.{key}") for key in ("model", "pre"))
    if kind != "gpt2" or pre not in SPLITS:
        raise CheckpointError(
            f"tokenizer.ggml.model={kind!r} with pre={pre!r} is not covered: gpt2 with pre "
            f"{', '.join(SPLITS)}"
        )
    names, merges = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.merges"]
    types = metadata["tokenizer.ggml.token_type"]
    used = {name: i for i, name in enumerate(names) if types[i] != UNUSED}
    tokenizer = Tokenizer(models.BPE(used, [tuple(merge.split(" ", 1)) for merge in merges]))
    tokenizer.normalizer, tokenizer.decoder = normalizers.NFC(), decoders.ByteLevel()
    letters = ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = Sequence([Split(Regex(SPLITS[pre]), "isolated"), letters])
    tokenizer.add_tokens([
        AddedToken(name, normalized=False, special=types[i] == CONTROL)
        for name, i in used.items()
        if types[i] in (CONTROL, USER_DEFINED)
    ])  # fmt: skip
    ids = {role: metadata.get(f"tokenizer.ggml.{key}_token_id") for role, key in ROLES.items()}
    special = {role: names[token_id] for role, token_id in ids.items() if token_id is not None}
    template = metadata.get("tokenizer.chat_template")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=template, **special)
