"""The entry point in the group vllm.general_plugins, which vLLM calls in each of its processes."""


def register() -> None:
    """Register the installed families with vLLM. May be called any number of times."""
    from transformers import AutoConfig
    from vllm import ModelRegistry

    from dise_adapters.vllm.families import runnable
    from dise_adapters.vllm.inside.configs import CONFIGS

    for model_type, config in CONFIGS.items():
        AutoConfig.register(model_type, config, exist_ok=True)
    known = ModelRegistry.get_supported_archs()
    for name in (name for family in runnable() for name in family.architectures):
        if name not in known:
            ModelRegistry.register_model(name, f"dise_adapters.vllm.inside.models:{name}")
