"""What vLLM opens in each of its processes: the installed families, as its models and
configurations. Each has a class under its own name in this module, where those processes
import it.
"""

from functools import cache

from dise_adapters.vllm.families import runnable
from dise_adapters.vllm.inside.configs import config_class
from dise_core.plugins.discovery import installed_plugins

FAMILIES = list(runnable(installed_plugins()))
ARCHITECTURES = {name: family for family in FAMILIES for name in family.architectures}
CONFIGS = {
    model_type: config_class(family, model_type, __name__)
    for family in FAMILIES
    for model_type in family.model_types
}
"""The configuration classes by model_type."""

globals().update({config.__name__: config for config in CONFIGS.values()})


@cache
def __getattr__(name: str) -> type:
    """Return the model class of an architecture, for which vLLM's own classes are imported."""
    if name not in ARCHITECTURES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dise_adapters.vllm.inside.models import model_class

    return model_class(ARCHITECTURES[name], name, __name__)


def register() -> None:
    """Register the families with vLLM: its entry point in the group vllm.general_plugins.
    May be called any number of times.
    """
    from transformers import AutoConfig
    from vllm import ModelRegistry

    for model_type, config in CONFIGS.items():
        AutoConfig.register(model_type, config, exist_ok=True)
    architectures = ModelRegistry.get_supported_archs()
    for name in ARCHITECTURES:
        if name not in architectures:
            ModelRegistry.register_model(name, f"{__name__}:{name}")
