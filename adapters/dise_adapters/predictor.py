"""The predictor of every checkpoint: a family tells its format, an engine runs it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from dise_adapters.checkpoint.config import ConfigJson
from dise_adapters.checkpoint.files import one_line, refused
from dise_adapters.checkpoint.hub import ModelFiles, config_if_any, described, is_gguf, read_config
from dise_adapters.checkpoint.lora import Lora
from dise_adapters.checkpoint.tokenizer import FastTokenizer
from dise_adapters.checkpoint.weights import WeightSource
from dise_adapters.families.blocks import in_words
from dise_adapters.families.family import Checkpoint, Family
from dise_adapters.families.names import architectures, checkpoint_names
from dise_adapters.families.special import special_tokens
from dise_adapters.merging import adapted, refuse_foreign
from dise_core import (
    EngineConfig,
    Ids,
    MaskPredictor,
    ModelInfo,
    Read,
    Reader,
    Reading,
    SpecialTokens,
)
from dise_core.errors import CheckpointError
from dise_core.models.attention import Attention, Causal
from dise_core.models.backend import Backend
from dise_core.models.completion import check_abilities, completed
from dise_core.models.predictor import Ability, CacheRoom, Shown, unshown
from dise_core.params.engine import Dtype
from dise_core.plugins.catalog import Catalog
from dise_core.plugins.discovery import discover
from dise_core.plugins.hookspecs import PROJECT

if TYPE_CHECKING:
    from dise_adapters.local.loading.advice import Advice

READ = (
    "vocab_size", "max_position_embeddings", "eos_token_id", "mask_token_id",
    "tie_word_embeddings",
)  # fmt: skip
"""The fields that are taken from transformers, where it reads config.json."""


class CheckpointPredictor(MaskPredictor):
    """A checkpoint of one family, whose weights are loaded when they are needed, or by
    `load_weights`; `predictor_of` makes each family's class.
    """

    family: ClassVar[Family]
    tokenizer: FastTokenizer
    tokenizer_kind: ClassVar[type[FastTokenizer]] = FastTokenizer
    merges_lora = True

    @classmethod
    def claims(cls, model: str, revision: str | None = None) -> bool:
        fields = config_if_any(model, revision)
        if is_gguf(model) and (fields is None or "architectures" not in fields):
            return cls.family.takes_gguf
        return fields is not None and cls.family.matches(fields, model)

    @classmethod
    def explain(cls, model: str, revision: str | None = None) -> str | None:
        fields = read_config(model, revision)
        if fields is None:
            return None
        reason, names = cls.family.refusal(fields, model), architectures(fields)
        if reason is None and cls.family.recognizes is None:
            return None
        facts = (
            f"Its config.json says model_type {fields.get('model_type')!r} and architectures "
            f"{', '.join(names) or 'none'}"
        )
        return one_line(facts if reason is None else f"{facts}; it is refused: {reason}")

    @classmethod
    def load(cls, model: str, config: EngineConfig) -> Self:
        """Return the model, whose weights stay on the hub until they are needed. Raises
        CheckpointError for an unsupported variant, ModelError if loading fails otherwise,
        InputError for a path that does not exist.
        """
        return cls(described(model, config.revision), str(model), config)

    def __init__(
        self, files: ModelFiles, name: str, config: EngineConfig, reader: Reader | None = None
    ) -> None:
        """Load the tokenizer of the model `name`. reader: of its weights, if any."""
        family, (folder, fields, gguf) = self.family, (files.folder, files.fields, files.gguf)
        reason = family.refusal(fields, name)
        if gguf is not None and not (family.takes_gguf or family.matches(fields, name)):
            reason = f"its architecture, {fields.get('model_type')}, is not this adapter's"
        if reason is not None:
            raise CheckpointError(f"{name} is refused: {one_line(reason)}")
        weights = files.weights
        read = None
        settings = family.settings(fields, str(weights.path))
        if settings is None:
            read = _transformers_config(ConfigJson(fields, str(folder)), name, weights)
        described = settings or {field: getattr(read, field, None) for field in READ}
        self.tokenizer = self.tokenizer_kind.from_folder(folder, family.tokenizer_class, gguf)
        if family.is_framed:
            self.tokenizer = self.tokenizer.framed()
        names = (name, str(folder.absolute()))
        attention = family.attention_of(fields, names, config.block_size)
        config_json = ConfigJson({**fields, **described}, name)
        self.info = _info(family, config_json, self.tokenizer, attention, config.mask_token_id)
        if config.loras:
            loras = [Lora(folder.expanduser()) for folder in config.loras.values()]
            for lora in loras:
                refuse_foreign(lora, checkpoint_names(fields, *names), gguf is not None)
            is_tied = described.get("tie_word_embeddings")
            tied_rows = self.info.vocab_size if is_tied else None
            weights = adapted(weights, loras, family.renamed, tied_rows)
            self.info = replace(self.info, name="+".join([name, *config.loras]))
        mask_id = self.info.mask_token_id
        self._checkpoint = Checkpoint(family, weights, settings, read, attention, mask_id)
        self._config, self._requested_dtype = config, config.dtype
        self._reader, self._is_fitted = reader, reader is not None

    def fit(self, beside: Sequence[MaskPredictor] = ()) -> Dtype | None:
        models = [
            model
            for model in (self, *beside)
            if isinstance(model, CheckpointPredictor) and not model._is_fitted
        ]
        pairs = [(model._checkpoint, model._config) for model in models]
        for model, config in zip(models, self._backend.fitted(pairs), strict=True):
            model._config, model._is_fitted = config, True
        return None if self._config.dtype == self._requested_dtype else self._config.dtype

    @property
    def dtype(self) -> str:
        """The type that its weights get here: what "auto" means for this processor, and the
        memory that is free. Raises InputError where nothing fits.
        """
        self.fit()
        return self._backend.dtype_of(self._config)

    def advice(self) -> "Iterator[Advice]":
        """Yield what each type of weights would take here, as soon as it is tried. Raises
        InputError for a model of which no layer can be tried, and where no type fits.
        """
        from dise_adapters.local.loading.advice import advice

        return advice(self._checkpoint, self._config)

    def load_weights(self, shown: Shown = unshown) -> None:
        """Load the weights, if they are not loaded yet. Raises CheckpointError for
        weights that are not those of the model, ModelError if loading fails otherwise,
        InputError for options that do not suit the engine, or the memory that is free.
        """
        self._loaded(shown)

    @property
    def room(self) -> CacheRoom | None:  # type: ignore[override]
        """The KV cache of the loaded weights, which are loaded for it."""
        return self._loaded().room

    @property
    def abilities(self) -> frozenset[Ability]:  # type: ignore[override]
        """What its reader answers beyond plain Reads; the weights are loaded for it."""
        return getattr(self._loaded(), "abilities", frozenset())

    def read(self, reads: Sequence[Read]) -> Sequence[Reading]:
        reader = self._loaded()
        for read in reads:
            check_abilities(read, self.info, self.abilities)
        return reader.read([self._framed(completed(read, self.info)) for read in reads])

    def _framed(self, read: Read) -> Read:
        """Return the Read of the text within its frame."""
        before, behind = self.tokenizer.frame
        if not (len(before) or len(behind)):
            return read

        def within(ids: Ids) -> Ids:
            return np.concatenate([before, ids, behind])

        guidance = read.guidance
        if guidance is not None:
            guidance = replace(guidance, token_ids=within(guidance.token_ids), context_ids=None)
        return replace(
            read,
            token_ids=within(read.token_ids),
            positions=read.positions + len(before),
            guidance=guidance,
            cache=None,
            context_ids=None,
        )

    def update_weights(self, named: Mapping[str, Any]) -> None:
        weights = getattr(self._loaded(), "weights", None)
        if weights is None:
            super().update_weights(named)
        else:
            weights.update(named)

    def _loaded(self, shown: Shown = unshown) -> Reader:
        if self._reader is None:
            self.fit()
            self._refuse_headless()
            weights = self._checkpoint.weights.fetched()
            with shown(self.info.name) as report:
                checkpoint = replace(self._checkpoint, weights=weights, report=report)
                self._reader = self._backend.open(checkpoint, self._config)
        return self._reader

    def _refuse_headless(self) -> None:
        """Raise CheckpointError, by the weights' names, for a model without its head."""
        head, weights = self.family.head, self._checkpoint.weights
        if head is not None and not any(re.search(head, name) for name in weights.stored):
            raise CheckpointError(
                f"{self.info.name} has no head that predicts tokens, as a sentence encoder has "
                "none: its files hold no weights of one. Name a checkpoint that was saved with its "
                "head."
            )

    @property
    def _backend(self) -> type[Backend[Checkpoint]]:
        return catalog_for(self._config).backend(self._config.engine)


def catalog_for(config: EngineConfig) -> Catalog:
    """Return the catalog that loads a model with these options; where the model's class
    was called instead, that of this package's adapters and engines.
    """
    return config.catalog if isinstance(config.catalog, Catalog) else _own()


@cache
def _own() -> Catalog:
    return discover([EntryPoint("adapters", "dise_adapters.plugin", PROJECT)])


def load_reader(checkpoint: Checkpoint, config: EngineConfig) -> Reader:
    """Return a reader of the checkpoint, loaded by the engine that `config.engine` names;
    one of the catalog's that loads the model, where `config` is what that gave the
    adapter.

    Raises CheckpointError for weights that do not fit, ModelError if loading fails
    otherwise, InputError for an unknown engine, for options that do not suit it, and for
    a model that is larger than the memory that is free.
    """
    backend = catalog_for(config).backend(config.engine)
    [fitted] = backend.fitted([(checkpoint, config)])
    here = replace(checkpoint, weights=checkpoint.weights.fetched())
    return backend.open(here, fitted)


def predictor_of(family: Family, checked_on: str = "") -> type[CheckpointPredictor]:
    """Return the predictor class of a family, ready for the hook dise_mask_predictors."""
    about = f"{family.about.rstrip('.')} ({in_words(family.attention)})."
    members = {"family": family, "checked_on": checked_on, "example": family.example}
    members |= {"trained_on": family.trained_on, "sampler": family.sampler}
    members |= {"__doc__": about, "__module__": __name__}
    return type(CheckpointPredictor.__name__, (CheckpointPredictor,), members)


def _info(
    family: Family,
    config: ConfigJson,
    tokenizer: FastTokenizer,
    attention: Attention,
    mask_token_id: int | None,
) -> ModelInfo:
    """Return the description of the model of a configuration, called `config.where`."""
    vocab_size = config.whole("vocab_size")
    if isinstance(attention, Causal):
        special = SpecialTokens(None, frozenset(config.token_ids("eos_token_id")))
    else:
        special = special_tokens(family, config, tokenizer, mask_token_id)
    for token_id, role in [(special.mask_id, "its mask"), (special.eos_id, "an end")]:
        if token_id is not None and token_id >= vocab_size:
            raise CheckpointError(
                f"{config.where} has {vocab_size} rows of logits, so {token_id} cannot be {role} "
                "token"
            )
    taken = family.reserved(config.fields) + sum(map(len, tokenizer.frame))
    return ModelInfo(
        config.where,
        vocab_size,
        config.whole("max_position_embeddings") - taken,
        special,
        attention,
        family.tempered_confidence,
        family.last_block,
        family.noise,
        fill_id=tokenizer.id_of(family.fill_token) if family.fill_token else None,
    )


def _transformers_config(config: ConfigJson, name: str, weights: WeightSource) -> Any:
    from dise_adapters.local.loading.quiet import read_by_transformers

    config.check_layers()
    config.refuse_variants({"transformers_weights": (None,)})
    with refused(f"cannot load {name}"):
        return read_by_transformers(weights)
