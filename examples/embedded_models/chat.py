"""What the embedded models' tokenizers share: the special tokens, the chat template, the files."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer

USER, ASSISTANT, TURN_END, END, MASK = SPECIAL = [
    "<|user|>",
    "<|assistant|>",
    "<|eot_id|>",
    "<|endoftext|>",
    "<|mdm_mask|>",
]

TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}<|user|>{{ message['content'] }}"
    "{% elif message['role'] == 'assistant' %}<|assistant|>{{ message['content'] }}<|endoftext|>"
    "{% else %}{{ raise_exception('this model knows the roles user and assistant, not '"
    " + message['role']) }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def save(tokenizer: Tokenizer, folder: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and chat_template.jinja."""
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": tokenizer.model.unk_token,
        "eos_token": END,
        "pad_token": END,
        "mask_token": MASK,
        "model_max_length": 512,
        "clean_up_tokenization_spaces": False,
    }
    known = {name: value for name, value in settings.items() if value is not None}
    (folder / "tokenizer_config.json").write_text(json.dumps(known, indent=2) + "\n")
    (folder / "chat_template.jinja").write_text(TEMPLATE + "\n")
