"""Tiny checkpoints of three families with random weights, whose tokens spell every byte and some
longer texts. Only tests use them.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from tests import reference_dream, reference_llada
from tests.published import SDAR
from tests.reference_backbone import write_checkpoint

LONGER = ['{"', '"}', '": ', '": "', '", "', ", ", "]}", "true", "false", "null", "00", "12",
          "-1", "qty", ' "a', "größe", "né", "日", "ab", " the", "\\n", '\\"', "next"]  # fmt: skip
END, MASK = 256 + len(LONGER), 256 + len(LONGER) + 1
SIZE = MASK + 1
ROOM = {"max_position_embeddings": 2048}

FAMILIES = ("llada", "dream", "sdar")


def write(family: str, folder: Path) -> Path:
    """Write a checkpoint of that family."""
    ends = {"eos_token_id": END, "pad_token_id": END}
    if family == "llada":
        sizes = {"vocab_size": SIZE, "embedding_size": SIZE, "max_sequence_length": 2048}
        config = reference_llada.default_config(mask_token_id=MASK, **ends, **sizes)
        weights = reference_llada.random_weights(config)
        folder = reference_llada.write_checkpoint(folder, config, weights)
        names = "<|endoftext|>", "<|mdm_mask|>"
    elif family == "dream":
        ends |= {"mask_token_id": MASK, "bos_token_id": END, "vocab_size": SIZE}
        folder = reference_dream.write_checkpoint(folder, **ends, **ROOM)
        names = "<|endoftext|>", "<|mask|>"
    else:
        sized = replace(SDAR, shape=replace(SDAR.shape, vocab=SIZE, gain=1.6))
        config = sized.fields(**ROOM, eos_token_id=END, bos_token_id=END)
        folder = write_checkpoint(folder, sized.shape, config, lambda _: None)
        names = "<|im_end|>", "<|MASK|>"
    write_tokenizer(folder, *names)
    return folder


def write_tokenizer(folder: Path, end: str, mask: str) -> None:
    """Write a byte-level tokenizer, with these names of the end and the mask token."""
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    longer = [level.pre_tokenize_str(text)[0][0] for text in LONGER]
    names = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *longer]
    made = Tokenizer(models.BPE({name: index for index, name in enumerate(names)}, []))
    made.pre_tokenizer, made.decoder = level, decoders.ByteLevel()
    made.add_special_tokens([end, mask])
    made.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": end, "mask_token": mask}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    for name in ("vocab.json", "merges.txt"):
        (folder / name).unlink(missing_ok=True)
