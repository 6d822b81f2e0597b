"""A family of checkpoints, described as data from which every engine loads it."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dise_adapters.checkpoint.config import ConfigJson
from dise_adapters.checkpoint.weights import WeightSource
from dise_adapters.families.blocks import Varying, attention_of, variants
from dise_adapters.families.names import architectures, checkpoint_names
from dise_core.models.attention import BIDIRECTIONAL, Attention, Bidirectional, Causal
from dise_core.models.info import AnswersFor, LastBlockRule, NoiseKind, TemperedConfidence
from dise_core.models.predictor import ReportShare, unreported
from dise_core.records import JsonFields

_NEMOTRON = "Nemotron-Labs-Diffusion, whose finished text is read causally"
_WEDLM = "WeDLM, diffusion with causal attention and tokens in another order"
_REFUSION = "ReFusion, diffusion with causal attention over slots of tokens"

NOT_COVERED = {
    "nemotronlabsdiffusionmodel": _NEMOTRON,
    "nemotron_labs_diffusion": _NEMOTRON,
    "wedlmforcausallm": _WEDLM,
    "wedlm": _WEDLM,
    "refusionforcausallm": _REFUSION,
    "refusion": _REFUSION,
    "bd3lm": "BD3-LM, block diffusion with a backbone of its own",
    "mdlm": "MDLM, with a backbone of its own",
    "llada_moe_v2": "LLaDA-MoE v2, whose format is not published",
}
"""Diffusion models of no family here, by a name in `architectures` or their `model_type`,
in lower case: refused, so that none is mistaken for another.
"""

ConfigFields = dict[str, Any]
"""The fields of a configuration of transformers."""


@dataclass(frozen=True, slots=True)
class Split:
    """Weights of the checkpoint that hold several of the model's, one below the other.

    pattern: a regular expression for part of their names. parts: what replaces it in the
    names of the model's weights, from top to bottom. rows: the rows of each, from the
    settings.
    """

    pattern: str
    parts: tuple[str, ...]
    rows: Callable[[ConfigFields], tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A family: checkpoints of one format.

    about: a one-sentence description. example: the hub id of a published checkpoint.
    architectures, model_types: the names that config.json gives it; model_types count
    only if config.json names no architecture. model_class: the transformers class that
    computes it. defaults: fields of config.json where it has none. covered: the fields
    that change the computation, with the values that the class covers, the first of them
    where config.json has none. translate: maps config.json to the class's configuration,
    with "vocab_size" and "max_position_embeddings"; raises CheckpointError, naming field
    and value, for what the class does not cover. None: transformers reads config.json
    itself. key_mapping: regular expressions for the checkpoint's weight names, with their
    replacements. split: weights to be taken apart. unused: a regular expression for the
    checkpoint's weights that the class does not compute, such as the pooler of a BERT;
    any other that the class lacks is refused. head: a regular expression for the weights
    that make logits of states; a checkpoint without any of them is refused before it is
    loaded. is_framed: whether a text is read between the tokens that the tokenizer puts
    around one, such as [CLS] and [SEP], unless a chat template writes them; no end token
    then follows a text. reserved: how many of max_position_embeddings no token has, by
    config.json. mask_tokens, end_tokens: their
    possible names in the vocabulary. mask_id: of every published checkpoint, where their
    files may not name it. tempered_confidence, last_block, noise: see ModelInfo.
    fill_token: the name of the token behind the end of a finished text, `fill_id` there.
    tokenizer_class: transformers' class.
    takes_gguf: whether GGUF files load too. recognizes: replaces the check of
    architectures and model_types. other_names: regular expressions for what models are
    called that have this format and are not covered, with the reason, in which {} is the
    name. obstacle: returns any other reason for refusing a checkpoint, from its
    config.json and its name. trained_on, sampler: see MaskPredictor.
    """

    about: str
    example: str = ""
    trained_on: str = "masks alone"
    sampler: str = ""
    architectures: tuple[str, ...] = ()
    model_types: tuple[str, ...] = ()
    model_class: str
    defaults: Mapping[str, object] = field(default_factory=dict)
    covered: Mapping[str, Sequence[object]] = field(default_factory=dict)
    translate: Callable[[ConfigJson], ConfigFields] | None = None
    key_mapping: Mapping[str, str] = field(default_factory=dict)
    split: Split | None = None
    unused: str | None = None
    head: str | None = None
    is_framed: bool = False
    reserved: Callable[[JsonFields], int] = lambda fields: 0  # noqa: ARG005
    mask_tokens: tuple[str, ...] = ()
    mask_id: int | None = None
    end_tokens: tuple[str, ...] = ()
    answers_for: AnswersFor = "own"
    attention: Attention | Varying = BIDIRECTIONAL
    tempered_confidence: TemperedConfidence = False
    last_block: LastBlockRule = "masks"
    tokenizer_class: str = "PreTrainedTokenizerFast"
    takes_gguf: bool = False
    recognizes: Callable[[JsonFields, str], bool] | None = None
    other_names: Mapping[str, str] = field(default_factory=dict)
    obstacle: Callable[[JsonFields, str], str | None] = lambda fields, model: None  # noqa: ARG005
    noise: NoiseKind = "masks"
    fill_token: str = ""

    def matches(self, fields: JsonFields, model: str) -> bool:
        """Return whether a checkpoint of that config.json and name is of this family."""
        recognizes = self.recognizes
        is_ours = self._is_named(fields) if recognizes is None else recognizes(fields, model)
        return is_ours and self.refusal(fields, model) is None

    def refusal(self, fields: JsonFields, model: str) -> str | None:
        """Return why config.json or the name rules the checkpoint out, if either does."""
        kinds = (*architectures(fields), str(fields.get("model_type")))
        for reason in filter(None, (NOT_COVERED.get(name.casefold()) for name in kinds)):
            if not self._is_named(fields):
                return f"it is a diffusion model that is not covered: {reason}"
        for name in checkpoint_names(fields, model):
            for pattern, reason in self.other_names.items():
                if re.search(pattern, name, re.IGNORECASE):
                    return reason.format(name)
        return self.obstacle(fields, model)

    def _is_named(self, fields: JsonFields) -> bool:
        names = architectures(fields)
        covered = {name.casefold() for name in (self.architectures if names else self.model_types)}
        return any(name.casefold() in covered for name in names or [str(fields.get("model_type"))])

    def settings(self, fields: JsonFields, where: str) -> ConfigFields | None:
        """Return the configuration of the model class; None if transformers reads
        config.json.

        where: the checkpoint, for errors. Raises CheckpointError for unsupported fields.
        """
        if self.translate is None:
            return None
        config = ConfigJson({**self.defaults, **fields}, where)
        config.refuse_variants(self.covered)
        return self.translate(config) | {"is_causal": isinstance(self.attention, Causal)}

    def renamed(self, name: str) -> str:
        """Return the model class's name of a weight by that of the checkpoint."""
        for pattern, replacement in self.key_mapping.items():
            if re.search(pattern, name):
                return re.sub(pattern, replacement, name, count=1)
        return name

    def attention_of(
        self,
        fields: JsonFields,
        names: Sequence[str],
        block_size: int | None = None,
        otherwise: Attention | None = None,
    ) -> Attention:
        """Return a checkpoint's attention. names: ids or paths; errors give the first."""
        config, aliases = ConfigJson(fields, names[0]), checkpoint_names(fields, *names)
        return attention_of(self.attention, config, aliases, block_size, otherwise)

    @property
    def may_be_bidirectional(self) -> bool:
        """Whether its checkpoints may attend in both directions."""
        return any(isinstance(variant, Bidirectional) for variant in variants(self.attention))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint for an engine to open.

    weights: its files. settings: the fields of the model class's configuration; None if
    transformers reads config.json. config: transformers' configuration, where it was
    read.
    attention: this checkpoint's. mask_id: its mask token, if it has one. report: gets
    how much is read.
    """

    family: Family
    weights: WeightSource
    settings: ConfigFields | None = None
    config: Any = None
    attention: Attention = BIDIRECTIONAL
    mask_id: int | None = None
    report: ReportShare = unreported

    @property
    def folder(self) -> Path:
        """The folder of its files."""
        return self.weights.folder

    @property
    def is_gguf(self) -> bool:
        """Whether a GGUF file holds the weights."""
        return self.weights.path != self.folder
