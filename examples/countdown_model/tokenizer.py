"""The tokenizer of the embedded model: every digit, sign and mark is one token."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

DIGITS = list("0123456789")
SIGNS = ["+", "-", "*", "/", "=", ",", "(", ")", "->", "<answer>", "</answer>"]
UNKNOWN, USER, ASSISTANT, TURN_END, END, MASK = SPECIAL = [
    "<|unk|>",
    "<|user|>",
    "<|assistant|>",
    "<|eot_id|>",
    "<|endoftext|>",
    "<|mdm_mask|>",
]
VOCABULARY = {token: token_id for token_id, token in enumerate([*DIGITS, *SIGNS, *SPECIAL])}

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}<|user|>{{ message['content'] }}"
    "{% elif message['role'] == 'assistant' %}<|assistant|>{{ message['content'] }}<|endoftext|>"
    "{% else %}{{ raise_exception('this model knows the roles user and assistant, not '"
    " + message['role']) }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def build() -> Tokenizer:
    """Return the tokenizer: spaces are dropped, then digits, marks and signs are split off."""
    tokenizer = Tokenizer(models.WordLevel(VOCABULARY, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Replace(Regex(r"\s+"), "")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\d|->|</?answer>|."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(SPECIAL)
    return tokenizer


def save(folder: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and chat_template.jinja."""
    build().save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": UNKNOWN,
        "eos_token": END,
        "pad_token": END,
        "mask_token": MASK,
        "model_max_length": 512,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE + "\n")
