"""A published format at a tiny size: its config.json, its tokenizer and what the model computes.
Only tests use it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dise_core.models.attention import BIDIRECTIONAL, Attention, BlockCausal
from tests.reference_backbone import Reference, Shape, common_config, write_checkpoint

LETTERS = "abcdefghijklmnopqrstuvwxyz "


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published format. config: what it has beside the fields that all share. tokens: the special
    tokens by their ids. mask_token: the tokenizer's, if its files name one. called: the folder's
    name.
    """

    family: str
    shape: Shape
    config: Mapping[str, object]
    mask_id: int
    tokens: Mapping[int, str] = field(default_factory=dict)
    mask_token: str | None = None
    eos_id: int = 62
    called: str = "model"

    @property
    def attention(self) -> Attention:
        """Return what its tokens see."""
        return BIDIRECTIONAL if self.shape.block is None else BlockCausal(self.shape.block)

    def fields(self, **changes: object) -> dict[str, Any]:
        """Return the fields of config.json."""
        return common_config(self.shape, **{**self.config, **changes})

    def write(self, root: Path, **changes: object) -> Path:
        """Write a checkpoint below that folder, with these fields of config.json changed."""
        return self.write_into(root / self.called, **changes)

    def write_into(self, folder: Path, **changes: object) -> Path:
        """Write a checkpoint into the folder, with these fields of config.json changed."""
        return write_checkpoint(folder, self.shape, self.fields(**changes), self.write_tokenizer)

    def reference(self, folder: Path) -> Reference:
        """Return what the checkpoint computes, written out."""
        return Reference(folder, self.shape)

    def write_tokenizer(self, folder: Path) -> None:
        """Write a tokenizer of one character a token with the special tokens."""
        tokenizer(folder, self.shape.vocab, self.tokens, self.mask_token)


def described(folder: Path, **fields: object) -> str:
    """Return a folder that holds this config.json and nothing else."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(fields))
    return str(folder)


def edit(path: Path, **changes: object) -> None:
    """Change fields of a file of JSON."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def tokenizer(folder: Path, size: int, special: Mapping[int, str], mask: str | None) -> None:
    """Write a tokenizer of one character a token, with special tokens by their ids.

    mask: the mask token that its files name, if they do.
    """
    names = [special.get(i) or LETTERS[i - 8 : i - 7] if 8 <= i < 35 else special.get(i) or f"<{i}>"
             for i in range(size)]  # fmt: skip
    named = {} if mask is None else {"mask_token": mask}
    write_words(folder, names, [*special.values()], unk_token=names[0], **named)


def write_words(folder: Path, names: list[str], special: list[str], **named: str) -> None:
    """Write a tokenizer of these tokens, by id, and of a character at a time. named: the tokens
    that its files name, "unk_token" among them.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    vocabulary = {name: i for i, name in enumerate(names)}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token=named["unk_token"]))
    made.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    made.decoder = decoders.Fuse()
    made.add_special_tokens(special)
    made.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **named}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
