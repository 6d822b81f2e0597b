"""The entry point of vllm.general_plugins: vLLM calls it in each process that it starts."""

from __future__ import annotations


def register() -> None:
    """Make the installed families known to vLLM. May be called any number of times."""
    from transformers import AutoConfig
    from vllm import ModelRegistry

    from dise_adapters.vllm.configs import CONFIGS
    from dise_adapters.vllm.families import runnable

    for model_type, config in CONFIGS.items():
        AutoConfig.register(model_type, config, exist_ok=True)
    known = ModelRegistry.get_supported_archs()
    for name in (name for family in runnable() for name in family.architectures):
        if name not in known:
            ModelRegistry.register_model(name, f"dise_adapters.vllm.models:{name}")
