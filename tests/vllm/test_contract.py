"""What we use of vLLM's insides is where it was. If this fails, read docs/vllm.md before changing
the pinned range.
"""

import importlib
import inspect

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


def test_signatures_take_what_we_give() -> None:
    from vllm.model_executor.layers.logits_processor import LogitsProcessor
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.engine.llm_engine import LLMEngine
    from vllm.v1.pool.metadata import PoolingMetadata

    assert "extra_kwargs" in inspect.signature(vllm.PoolingParams).parameters
    assert {"prompts", "pooling_params", "pooling_task", "use_tqdm"} <= set(
        inspect.signature(vllm.LLM.encode).parameters
    )
    assert list(inspect.signature(LLMEngine.add_request).parameters)[1:4] == [
        "request_id",
        "prompt",
        "params",
    ]
    assert list(inspect.signature(LLMEngine.abort_request).parameters)[1:2] == ["request_ids"]
    assert hasattr(LLMEngine, "step")
    assert hasattr(LLMEngine, "has_unfinished_requests")
    assert "skip_gather" in inspect.signature(LogitsProcessor._get_logits).parameters
    assert list(inspect.signature(AsyncLLM.encode).parameters)[1:4] == [
        "prompt",
        "pooling_params",
        "request_id",
    ]
    assert hasattr(PoolingMetadata, "get_prompt_token_ids_cpu")
    assert hasattr(PoolingMetadata, "get_pooling_cursor")


def test_our_endpoint_is_a_plugin_of_its_kind() -> None:
    from vllm.plugins.endpoint_plugins.interface import EndpointPlugin

    from dise_adapters.vllm.endpoint import DiseEndpoint

    assert isinstance(DiseEndpoint(), EndpointPlugin)
