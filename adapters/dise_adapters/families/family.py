"""What a family of checkpoints is: data, from which every engine loads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from dise_core.model import BIDIRECTIONAL, Attention, Causal
from dise_core.records import Fields, Record

Settings = Record
"""The fields of a configuration of transformers."""

AnswersFor = Literal["own", "next"]
"""The position that a row of logits answers for: its own, or the next; position 0 then is answered
by its own row, or, under causal attention, never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Checkpoints of one format.

    about: what it is, in one sentence. architectures, model_types: the names that config.json gives
    it; model_types count only where config.json names no architecture. model_class: transformers'
    own class that computes it. translate: makes that class's configuration of config.json's fields,
    with "vocab_size" and "max_position_embeddings"; raises CheckpointError, naming the field and
    its value, for what the class does not cover. None: transformers reads config.json itself.
    key_mapping: patterns of the checkpoint's weight names, and the class's own. mask_tokens,
    end_tokens: the names that a vocabulary may give them. tempered_confidence: see ModelInfo.
    tokenizer_class: that of transformers; takes_gguf: whether it is also loaded from GGUF files.
    recognizes: decides in place of the names; obstacle: why a checkpoint is refused, by its
    config.json and its name.
    """

    about: str
    architectures: tuple[str, ...] = ()
    model_types: tuple[str, ...] = ()
    model_class: str
    translate: Callable[[Fields, str], Settings] | None = None
    key_mapping: Mapping[str, str] = field(default_factory=dict)
    mask_tokens: tuple[str, ...] = ()
    end_tokens: tuple[str, ...] = ()
    answers_for: AnswersFor = "own"
    attention: Attention = BIDIRECTIONAL
    tempered_confidence: bool = False
    tokenizer_class: str = "PreTrainedTokenizerFast"
    takes_gguf: bool = False
    recognizes: Callable[[Fields, str], bool] | None = None
    obstacle: Callable[[Fields, str], str | None] = lambda fields, model: None  # noqa: ARG005

    def matches(self, fields: Fields, model: str) -> bool:
        """Return whether the checkpoint of that config.json and name is of this family."""
        if self.recognizes is not None:
            return self.recognizes(fields, model)
        names = architectures(fields)
        known = self.architectures if names else self.model_types
        given = names or [str(fields.get("model_type"))]
        is_ours = any(name.casefold() in map(str.casefold, known) for name in given)
        return is_ours and self.obstacle(fields, model) is None

    def settings(self, fields: Fields, where: str) -> Settings | None:
        """Return the configuration of the model class; None where transformers reads it itself.

        where: the checkpoint, for errors. Raises CheckpointError for what is not covered.
        """
        if self.translate is None:
            return None
        return self.translate(fields, where) | {"is_causal": isinstance(self.attention, Causal)}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What an engine opens.

    folder: with config.json and weights in safetensors, or the GGUF file of that name. settings:
    the fields of the model class's configuration; None where transformers reads config.json.
    """

    family: Family
    folder: Path
    settings: Settings | None = None
    gguf_file: str | None = None


def architectures(fields: Fields) -> list[str]:
    """Return the class names that config.json gives; none where it gives no list."""
    names = fields.get("architectures")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
