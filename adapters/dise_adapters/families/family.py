"""A family of checkpoints, described as data from which every engine loads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Literal

from dise_adapters.checkpoint.config import ConfigJson
from dise_adapters.families.blocks import Varying, attention_of, kinds_of
from dise_core.model import (
    BIDIRECTIONAL,
    Attention,
    Bidirectional,
    Causal,
    LastBlock,
    TemperedConfidence,
)
from dise_core.records import Fields, Record

Settings = Record
"""The fields of a configuration of transformers."""

AnswersFor = Literal["own", "next"]
"""The position that a row of logits predicts: its own, or the next one. With "next", row 0 also
answers for position 0, except under causal attention, where position 0 has no answer."""


@dataclass(frozen=True, slots=True)
class Split:
    """Weights of the checkpoint that hold several of the model's, one below the other.

    pattern: a regular expression for part of their names. parts: what replaces it in the names of
    the model's weights, from top to bottom. rows: the rows of each, from the settings.
    """

    pattern: str
    parts: tuple[str, ...]
    rows: Callable[[Settings], tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A family: checkpoints of one format.

    about: a one-sentence description. example: the hub id of a published checkpoint. architectures,
    model_types: the names that config.json gives it; model_types count only if config.json names no
    architecture. model_class: the transformers class that computes it. translate: maps config.json
    to that class's configuration, with "vocab_size" and "max_position_embeddings"; raises
    CheckpointError, naming field and value, for what the class does not cover. None: transformers
    reads config.json itself. key_mapping: regular expressions for the checkpoint's weight names,
    with their replacements. split: weights to be taken apart. unused: a regular expression for the
    checkpoint's weights that the class does not compute, such as the pooler of a BERT; any other
    that the class lacks is refused. head: the modules between the body and the logits; empty for
    the model's output embeddings alone. mask_tokens, end_tokens: their possible names in the
    vocabulary. mask_id: of every published checkpoint, where their files may not name it.
    tempered_confidence, last_block: see ModelInfo. tokenizer_class: transformers' class.
    takes_gguf: whether GGUF files load too. recognizes: replaces the check of the names. obstacle:
    returns the reason for refusing a checkpoint, from its config.json and its name.
    """

    about: str
    example: str = ""
    architectures: tuple[str, ...] = ()
    model_types: tuple[str, ...] = ()
    model_class: str
    translate: Callable[[ConfigJson], Settings] | None = None
    key_mapping: Mapping[str, str] = field(default_factory=dict)
    split: Split | None = None
    unused: str | None = None
    head: tuple[str, ...] = ()
    mask_tokens: tuple[str, ...] = ()
    mask_id: int | None = None
    end_tokens: tuple[str, ...] = ()
    answers_for: AnswersFor = "own"
    attention: Attention | Varying = BIDIRECTIONAL
    tempered_confidence: TemperedConfidence = False
    last_block: LastBlock = "masks"
    tokenizer_class: str = "PreTrainedTokenizerFast"
    takes_gguf: bool = False
    recognizes: Callable[[Fields, str], bool] | None = None
    obstacle: Callable[[Fields, str], str | None] = lambda fields, model: None  # noqa: ARG005

    def matches(self, fields: Fields, model: str) -> bool:
        """Return whether the checkpoint with that config.json and name belongs to this family."""
        if self.recognizes is not None:
            return self.recognizes(fields, model)
        names = architectures(fields)
        known = self.architectures if names else self.model_types
        given = names or [str(fields.get("model_type"))]
        is_ours = any(name.casefold() in map(str.casefold, known) for name in given)
        return is_ours and self.obstacle(fields, model) is None

    def settings(self, fields: Fields, where: str) -> Settings | None:
        """Return the configuration of the model class; None if transformers reads config.json.

        where: the checkpoint, for errors. Raises CheckpointError for unsupported fields.
        """
        if self.translate is None:
            return None
        config = ConfigJson(fields, where)
        return self.translate(config) | {"is_causal": isinstance(self.attention, Causal)}

    def attention_of(
        self,
        fields: Fields,
        names: Sequence[str],
        block_size: int | None = None,
        otherwise: Attention | None = None,
    ) -> Attention:
        """Return the attention of a checkpoint called `names`, ids or paths, the first of which
        errors give. otherwise: where nothing tells.

        Raises what `blocks.attention_of` raises.
        """
        called = [
            checkpoint_name(name) for name in (*names, str(fields.get("_name_or_path") or ""))
        ]
        config = ConfigJson(fields, names[0])
        return attention_of(self.attention, config, called, block_size, otherwise)

    @property
    def may_be_bidirectional(self) -> bool:
        """Whether some checkpoint of this family attends to the whole text."""
        return any(isinstance(kind, Bidirectional) for kind in kinds_of(self.attention))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint for an engine to open.

    folder: holds config.json and safetensors weights, or the file gguf_file. settings: the fields
    of the model class's configuration; None if transformers reads config.json. attention: this
    checkpoint's. mask_id: its mask token, if it has one.
    """

    family: Family
    folder: Path
    settings: Settings | None = None
    gguf_file: str | None = None
    attention: Attention = BIDIRECTIONAL
    mask_id: int | None = None


def checkpoint_name(model: str) -> str:
    """Return what a hub id or a path calls a checkpoint: its last part or, for a snapshot in the
    hub's cache, that of the id that it is a snapshot of.
    """
    path = PurePath(model)
    if path.parent.name == "snapshots" and path.parts[-3:-2]:
        return path.parts[-3].rpartition("--")[2]
    return path.name


def architectures(fields: Fields) -> list[str]:
    """Return the class names in config.json's `architectures`; none if it is not a list."""
    names = fields.get("architectures")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


MODEL_CLASSES = ("AutoModel", "AutoModelForCausalLM", "AutoModelForMaskedLM")
"""The entries of auto_map that name model classes."""


def remote_classes(fields: Fields) -> list[str]:
    """Return the class names of auto_map's model entries, each "module.Class" or
    "repository--module.Class".
    """
    auto_map = fields.get("auto_map")
    if not isinstance(auto_map, Mapping):
        return []
    entries = (auto_map.get(key) for key in MODEL_CLASSES)
    return [entry.rpartition(".")[2] for entry in entries if isinstance(entry, str)]
