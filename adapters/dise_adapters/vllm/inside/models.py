"""The families as pooling models on vLLM's own classes, with our pooler."""

import re
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from torch import Tensor, nn
from vllm.config import VllmConfig
from vllm.model_executor.models.interfaces_base import attn_type, default_pooling_type
from vllm.model_executor.models.utils import AutoWeightsLoader, WeightsMapper

from dise_adapters.families.family import Family
from dise_adapters.vllm.families import MODELS
from dise_adapters.vllm.inside.pooler import ReadingPooler


def model_class(family: Family, architecture: str, module: str) -> type[nn.Module]:
    """Return a subclass of vLLM's class, with bidirectional attention and a
    ReadingPooler. module: where vLLM's processes find it by its name.
    """
    base: Any = getattr(import_module(MODELS[family.model_class]), family.model_class)

    def init(self: Any, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        base.__init__(self, vllm_config=vllm_config, prefix=prefix)
        self.pooler = ReadingPooler(self, family.answers_for)

    def load_weights(self: Any, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        patterns = {re.compile(pattern): name for pattern, name in family.key_mapping.items()}
        mapper = WeightsMapper(orig_to_new_regex=patterns)
        loaded: set[str] = AutoWeightsLoader(self).load_weights(weights, mapper=mapper)
        return loaded

    members = {"__init__": init, "__module__": module, "is_pooling_model": True}
    members |= {"load_weights": load_weights} if family.key_mapping else {}
    model = default_pooling_type(tok_pooling_type="ALL")(type(architecture, (base,), members))
    reader: type[nn.Module] = attn_type("encoder_only")(model)
    return reader
