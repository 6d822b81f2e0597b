"""What we use of vLLM's insides is where it was. If this fails, read docs/vllm.md before changing
the pinned range.
"""

import importlib

import pytest

vllm = pytest.importorskip("vllm")

MINOR = "0.32"

PLACES = {
    "vllm": ["LLM", "ModelRegistry", "PoolingParams", "SamplingParams"],
    "vllm.config": ["VllmConfig"],
    "vllm.distributed": ["tensor_model_parallel_all_gather"],
    "vllm.model_executor.layers.pooler": ["PoolingParamsUpdate"],
    "vllm.model_executor.layers.pooler.abstract": ["Pooler"],
    "vllm.model_executor.models.interfaces_base": ["attn_type", "default_pooling_type"],
    "vllm.model_executor.models.llama": ["LlamaForCausalLM"],
    "vllm.model_executor.models.qwen2": ["Qwen2ForCausalLM"],
    "vllm.model_executor.models.utils": ["AutoWeightsLoader", "WeightsMapper"],
    "vllm.v1.pool.metadata": ["PoolingMetadata"],
    "vllm.plugins.endpoint_plugins.interface": ["EndpointPlugin"],
}


def test_the_version_is_the_tested_one() -> None:
    assert vllm.__version__.startswith(MINOR), (
        f"tested with vLLM {MINOR}, this is {vllm.__version__}"
    )


@pytest.mark.parametrize("module", PLACES)
def test_every_name_is_where_it_was(module: str) -> None:
    found = importlib.import_module(module)
    missing = [name for name in PLACES[module] if not hasattr(found, name)]
    assert not missing
