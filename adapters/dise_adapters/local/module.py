"""A model that is a module in memory, such as a trainer's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Self

import torch
from torch import nn
from transformers import PreTrainedTokenizerFast

from dise_adapters.checkpoint.tokenizer import FastTokenizer
from dise_adapters.local.decoder.weights import LoadedWeights
from dise_adapters.local.in_memory import Called, reader_of
from dise_core import (
    Causal,
    EngineConfig,
    InputError,
    MaskPredictor,
    ModelInfo,
    Read,
    Reading,
    SpecialTokens,
    Tokenizer,
)
from dise_core.models.backend import LoadedModule


class ModulePredictor(MaskPredictor):
    """A module of torch or transformers, with its weights of the moment."""

    def __init__(self, loaded: LoadedModule) -> None:
        """Raise InputError for what the module does not tell, or does not do."""
        module = loaded.module
        if not isinstance(module, nn.Module):
            raise InputError(
                f"A module is a torch.nn.Module, not {type(module).__name__}.", "module"
            )
        self._module, self.tokenizer = module, _tokenizer(loaded.tokenizer)
        self.info = _info(module, loaded)
        self._reader = reader_of(module, self.info, answers_for=loaded.answers_for)
        self.abilities = self._reader.abilities

    @classmethod
    def claims(cls, model: str, revision: str | None = None) -> bool:  # noqa: ARG003
        return False

    @classmethod
    def load(cls, model: str, config: EngineConfig) -> Self:  # noqa: ARG003
        raise InputError(f"{model!r:.80} is no module: see LLM.from_model.", "model")

    def read(self, reads: Sequence[Read]) -> Sequence[Reading]:
        return self._reader.read(reads)

    def update_weights(self, weights: Mapping[str, Any]) -> None:
        LoadedWeights.of(self._module).update(weights)


def _info(module: nn.Module, loaded: LoadedModule) -> ModelInfo:
    """Return what is known of a module. Raises InputError for what is not."""
    name, config = type(module).__name__, getattr(module, "config", None)
    called, length = Called(module, None), loaded.max_length or _length(module)
    [logits] = called(torch.tensor([[0, 1]], device=called.device), use_cache=False)
    if not length:
        raise InputError(
            f"{name} does not say how long texts may be: give max_length=.", "max_length"
        )
    ids = [*_ids(config, "mask"), *_ids(loaded.tokenizer, "mask")]
    mask_id = next(iter(ids), None) if loaded.mask_id is None else loaded.mask_id
    if isinstance(loaded.attention, Causal):
        mask_id = None
    elif mask_id is None:
        raise InputError(f"{name} and its tokenizer name no mask token: give mask_id=.", "mask_id")
    ends = [*_ids(config, "eos"), *_ids(loaded.tokenizer, "eos")]
    special = SpecialTokens(mask_id, frozenset(ends), ends[0] if ends else None)
    return ModelInfo(name, logits.shape[-1], length, special, loaded.attention)


def _ids(source: object, kind: str) -> list[int]:
    """Return the ids of its special tokens of that kind that a config, or a tokenizer of
    transformers, names.
    """
    ids: Any = getattr(source, f"{kind}_token_id", None)
    return [] if ids is None else [ids] if isinstance(ids, int) else list(ids)


def _length(module: nn.Module) -> int | None:
    """Return how long a text may be, as the config says: less where positions are counted
    from behind the padding's, as in RoBERTa.
    """
    config = getattr(module, "config", None)
    length: int | None = getattr(config, "max_position_embeddings", None)
    tables = (part for part in module.modules() if isinstance(part, nn.Embedding))
    paddings = (table.padding_idx for table in tables if table.num_embeddings == length)
    skipped = [index + 1 for index in paddings if index is not None]
    return length and length - max(skipped, default=0)


def _tokenizer(tokenizer: object) -> Tokenizer:
    if isinstance(tokenizer, Tokenizer):
        return tokenizer
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise InputError(
            "A tokenizer is a fast one of transformers or a dise_core.Tokenizer, not "
            f"{type(tokenizer).__name__}.",
            "tokenizer",
        )
    copied = deepcopy(tokenizer)  # the trainer's may cut texts, and pad them
    copied.backend_tokenizer.no_padding()
    copied.backend_tokenizer.no_truncation()
    return FastTokenizer(copied)
