"""The predictor of every checkpoint: a family describes its format, and an engine runs it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from dise_adapters.checkpoint.config import MOST, ConfigJson
from dise_adapters.checkpoint.files import one_line
from dise_adapters.checkpoint.hub import config_if_any, is_gguf, model_folder, read_config
from dise_adapters.checkpoint.special import special_tokens
from dise_adapters.checkpoint.tokenizer import FastTokenizer
from dise_adapters.families.blocks import in_words
from dise_adapters.families.family import Checkpoint, Family, architectures
from dise_adapters.families.not_covered import not_covered
from dise_core.backend import Reader
from dise_core.completion import check_abilities, completed
from dise_core.errors import CheckpointError, InputError
from dise_core.model import Attention, Causal, MaskPredictor, ModelInfo
from dise_core.params import EngineConfig
from dise_core.plugins import installed_catalog
from dise_core.reading import Read, Reading
from dise_core.records import Fields, Record
from dise_core.sequence import SpecialTokens


class CheckpointPredictor(MaskPredictor):
    """A loaded checkpoint of one family; `predictor_of` makes each family's class."""

    family: ClassVar[Family]
    tokenizer_kind: ClassVar[type[FastTokenizer]] = FastTokenizer

    @classmethod
    def claims(cls, model: str, revision: str | None = None) -> bool:
        """Return whether `model` is a folder or hub id whose config.json is of this family, or a
        GGUF file if the family takes those.
        """
        if is_gguf(model):
            return cls.family.takes_gguf
        fields = config_if_any(model, revision)
        return fields is not None and cls.family.matches(fields, model)

    @classmethod
    def explain(cls, model: str, revision: str | None = None) -> str | None:
        """Return what config.json says the model is, and why this family refuses it if it does;
        None if there is nothing to say. Raises what read_config raises.
        """
        fields = read_config(model, revision)
        if fields is None:
            return None
        reason, names = cls.family.obstacle(fields, model), architectures(fields)
        if reason is None and cls.family.recognizes is None:
            return None
        facts = (
            f"Its config.json says model_type {fields.get('model_type')!r} and architectures "
            f"{', '.join(names) or 'none'}"
        )
        return one_line(facts if reason is None else f"{facts}; it is refused: {reason}")

    @classmethod
    def load(cls, model: str, config: EngineConfig) -> Self:
        """Return the model of a folder or hub id, or of a GGUF file if the family takes those.

        Raises CheckpointError for an unsupported variant or weights that do not fit, ModelError if
        loading fails otherwise, InputError for a path that does not exist or unsuitable options.
        """
        if not (is_gguf(model) and cls.family.takes_gguf):
            return cls(model_folder(model, config.revision), model, config)
        path = Path(model).expanduser()
        if not path.is_file():
            raise InputError(f"there is no file {model!r}", "model")
        return cls(path.parent, model, config, gguf_file=path.name)

    def __init__(
        self,
        folder: Path,
        name: str,
        config: EngineConfig,
        reader: Reader | None = None,
        gguf_file: str | None = None,
    ) -> None:
        """Load the checkpoint in `folder`, to be called `name`; with a reader, only config.json and
        the tokenizer.
        """
        family = self.family
        fields = {} if gguf_file else read_config(str(folder)) or {}
        _refuse(family, fields, name)
        settings = family.settings(fields, str(folder))
        if settings is None:
            given = ConfigJson(fields, str(folder))
            given.check_numbers()
            given.refuse_variants({"transformers_weights": (None,)})
            fields = fields | _transformers_fields(folder, name, gguf_file)
        self.tokenizer = self.tokenizer_kind.from_folder(folder, family.tokenizer_class, gguf_file)
        names = (name, str(folder.absolute()))
        attention = family.attention_of(fields, names, config.block_size)
        described = fields | (settings or {})
        self.info = _info(family, described, self.tokenizer, name, config, attention)
        kind = (attention, self.info.special.mask_id)
        checkpoint = Checkpoint(family, folder, settings, gguf_file, *kind)
        self._reader = reader or load_reader(checkpoint, config)
        self.room = self._reader.room
        self.abilities = getattr(self._reader, "abilities", frozenset())

    def read(self, reads: Sequence[Read]) -> Sequence[Reading]:
        """Return the answers in the order of the reads. Raises InputError for position 0 of an
        auto-regressive model, and for kinds of Reads beyond `abilities`.
        """
        for read in reads:
            check_abilities(read, self.info, self.abilities)
        return self._reader.read([completed(read, self.info) for read in reads])


def load_reader(checkpoint: Checkpoint, config: EngineConfig) -> Reader:
    """Return a reader of the checkpoint, loaded by the engine that `config.engine` names.

    Raises CheckpointError for weights that do not fit, ModelError if loading fails otherwise,
    InputError for an unknown engine or options that do not suit it.
    """
    return installed_catalog().backend(config.engine).open(checkpoint, config)


def predictor_of(family: Family, checked_on: str = "") -> type[CheckpointPredictor]:
    """Return the predictor class of a family, ready for the hook dise_mask_predictors."""
    about = f"{family.about.rstrip('.')} ({in_words(family.attention)})."
    members = {"family": family, "checked_on": checked_on, "example": family.example}
    members |= {"__doc__": about, "__module__": __name__}
    return type(CheckpointPredictor.__name__, (CheckpointPredictor,), members)


def _info(
    family: Family,
    fields: Fields,
    tokenizer: FastTokenizer,
    name: str,
    config: EngineConfig,
    attention: Attention,
) -> ModelInfo:
    """Return the model's description, from its configuration, its tokenizer and the options."""
    vocab_size = _size(fields, "vocab_size", name)
    max_length = _size(fields, "max_position_embeddings", name)
    if isinstance(attention, Causal):
        ends = frozenset(ConfigJson(fields, name).token_ids("eos_token_id"))
        special = SpecialTokens(None, ends)
    else:
        special = special_tokens(
            fields,
            tokenizer,
            family.end_tokens,
            name,
            mask_tokens=family.mask_tokens,
            mask_token_id=config.mask_token_id,
            family_mask=family.mask_id,
        )
    for token_id, what in [(special.mask_id, "its mask"), (special.eos_id, "an end")]:
        if token_id is not None and token_id >= vocab_size:
            raise CheckpointError(
                f"{name} has {vocab_size} rows of logits, so {token_id} cannot be {what} token"
            )
    kind = (attention, family.tempered_confidence, family.last_block)
    return ModelInfo(name, vocab_size, max_length, special, *kind)


def _size(fields: Fields, field: str, name: str) -> int:
    value = fields.get(field)
    if type(value) is not int or not 1 <= value <= MOST[field]:
        said = f" between 1 and {MOST[field]}" if isinstance(value, int) else ""
        raise CheckpointError(
            f"the configuration of {name} gives no {field}{said}, so it is not a text model of a "
            "known length"
        )
    return value


def _transformers_fields(folder: Path, name: str, gguf_file: str | None) -> Record:
    """Return the configuration as transformers reads it."""
    from transformers import AutoConfig

    from dise_adapters.local.quiet import quiet

    with quiet():
        try:
            found: Any = AutoConfig.from_pretrained(
                folder, gguf_file=gguf_file, local_files_only=True, trust_remote_code=False
            )
        except Exception as error:
            raise CheckpointError(f"cannot load {name}: {one_line(error)}") from error
    names = ("vocab_size", "max_position_embeddings", "eos_token_id", "mask_token_id")
    return {name: getattr(found, name, None) for name in names}


def _refuse(family: Family, fields: Fields, name: str) -> None:
    """Raise CheckpointError for a checkpoint that its name or its config.json rules out."""
    is_named = set(architectures(fields)) & set(family.architectures)
    reason = family.obstacle(fields, name) or (None if is_named else not_covered(fields))
    if reason is not None:
        raise CheckpointError(f"{name} is refused: {one_line(reason)}")
