"""The entry point of the group vllm.general_plugins: vLLM calls it in every process that
it starts.
"""

from __future__ import annotations


def register() -> None:
    """Make LLaDA and Dream known to vLLM. May be called any number of times."""
    from transformers import AutoConfig
    from vllm import ModelRegistry

    from dise_adapters.vllm.configs import DreamConfig, LLaDAConfig

    AutoConfig.register("llada", LLaDAConfig, exist_ok=True)
    AutoConfig.register("Dream", DreamConfig, exist_ok=True)
    for name in ("LLaDAModelLM", "DreamModel"):
        if name not in ModelRegistry.get_supported_archs():
            ModelRegistry.register_model(name, f"dise_adapters.vllm.models:{name}")
