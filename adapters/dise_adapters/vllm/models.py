"""LLaDA and Dream on vLLM's own Llama and Qwen2, as pooling models: what they return is what the
pooler reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from torch import Tensor
from vllm.config import VllmConfig
from vllm.model_executor.models.interfaces_base import attn_type, default_pooling_type
from vllm.model_executor.models.llama import LlamaForCausalLM
from vllm.model_executor.models.qwen2 import Qwen2ForCausalLM
from vllm.model_executor.models.utils import AutoWeightsLoader, WeightsMapper

from dise_adapters.llada import KEY_MAPPING
from dise_adapters.vllm.eager import spare_memory
from dise_adapters.vllm.pooler import ReadingPooler


@attn_type("encoder_only")
@default_pooling_type(tok_pooling_type="ALL")
class LLaDAModelLM(LlamaForCausalLM):  # type: ignore[misc]
    """LLaDA."""

    is_pooling_model = True
    hf_to_vllm_mapper = WeightsMapper(
        orig_to_new_regex={re.compile(pattern): name for pattern, name in KEY_MAPPING.items()}
    )

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        spare_memory(self.model, vllm_config)
        self.pooler = ReadingPooler(self, shift=0)

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Load the checkpoint's weights under Llama's names."""
        loaded: set[str] = AutoWeightsLoader(self).load_weights(
            weights, mapper=self.hf_to_vllm_mapper
        )
        return loaded


@attn_type("encoder_only")
@default_pooling_type(tok_pooling_type="ALL")
class DreamModel(Qwen2ForCausalLM):  # type: ignore[misc]
    """Dream: its row i - 1 predicts token i."""

    is_pooling_model = True

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        spare_memory(self.model, vllm_config)
        self.pooler = ReadingPooler(self, shift=1)
