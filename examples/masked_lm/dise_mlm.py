"""Masked language models for DiSE, BERT and ModernBERT, as a distribution of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dise_adapters import (
    Checkpoint,
    Family,
    FastTokenizer,
    Safetensors,
    architectures,
    hub,
    load_reader,
)
from dise_core import (
    EngineConfig,
    Guidance,
    Ids,
    MaskPredictor,
    ModelInfo,
    Read,
    Reading,
    SpecialTokens,
    hookimpl,
)

CLASSES = {"BertForMaskedLM", "ModernBertForMaskedLM"}
UNUSED = r"^bert\.pooler\.|^cls\.seq_relationship\."


class MaskedLM(MaskPredictor):
    """A masked language model, BERT or ModernBERT, read between [CLS] and [SEP].

    Shadows and `mc` suit it, since it was trained on masks.
    """

    @classmethod
    def claims(cls, model: str, revision: str | None = None) -> bool:
        return not CLASSES.isdisjoint(architectures(hub.config_if_any(model, revision) or {}))

    @classmethod
    def load(cls, model: str, config: EngineConfig) -> MaskedLM:
        return cls(model, config)

    def __init__(self, model: str, config: EngineConfig) -> None:
        folder = hub.model_folder(model, config.revision)
        fields: Mapping[str, Any] = hub.read_config(str(folder)) or {}
        self.tokenizer = FastTokenizer.from_folder(folder)
        names = ("[CLS]", "[SEP]", "[MASK]")
        self._start, self._end, mask = (self.tokenizer.id_of(name) for name in names)
        special = SpecialTokens(mask, frozenset({self._end}), self._end)
        longest = fields["max_position_embeddings"] - 2
        self.info = ModelInfo(model, fields["vocab_size"], longest, special)
        family = Family(about="", model_class=architectures(fields)[0], unused=UNUSED)
        self._reader = load_reader(Checkpoint(family, Safetensors(folder), mask_id=mask), config)
        self.abilities = self._reader.abilities

    def read(self, reads: Sequence[Read]) -> Sequence[Reading]:
        return self._reader.read([self._framed(read) for read in reads])

    def _framed(self, read: Read) -> Read:
        ids, guidance = self._between(read.token_ids), read.guidance
        if guidance is not None:
            guidance = Guidance(self._between(guidance.token_ids), guidance.scale)
        positions = read.positions + 1
        return Read(ids, positions, read.readout, guidance=guidance, shadow=read.shadow)

    def _between(self, ids: Ids) -> Ids:
        return np.concatenate([[self._start], ids, [self._end]])


@hookimpl
def dise_mask_predictors() -> dict[str, type[MaskPredictor]]:
    """Return the adapter by the name that `adapter` takes."""
    return {"masked-lm": MaskedLM}
