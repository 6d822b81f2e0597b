"""The engine `vllm`."""

from dise_adapters.families.family import Checkpoint
from dise_adapters.vllm.options import VllmOptions
from dise_core import Backend, EngineConfig, InputError, Reader

CHOSEN = (
    "device", "attn_implementation", "device_map", "quantization", "judge_device", "lora",
)  # fmt: skip
"""What vLLM decides itself, or has arguments of its own for."""


class VllmBackend(Backend[Checkpoint]):
    """Runs models in a vLLM engine, on one device or several."""

    options = VllmOptions

    @classmethod
    def check(cls, config: EngineConfig) -> None:
        super().check(config)
        changed = config.model_dump(include={*CHOSEN}, exclude_defaults=True)
        if changed:
            raise InputError(
                "engine='vllm' chooses its devices, attention, quantization and adapters "
                f"itself; leave out {min(changed, key=CHOSEN.index)}; vllm_options takes "
                "vLLM's own arguments"
            )

    @classmethod
    def open(cls, checkpoint: Checkpoint, config: EngineConfig) -> Reader:
        from dise_adapters.vllm.reader import open_vllm_reader

        return open_vllm_reader(checkpoint, config)
