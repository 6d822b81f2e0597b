"""The options of the engine `vllm`."""

from pydantic import Field

from dise_core.params.base import Params, Settings


class VllmOptions(Params):
    """How vLLM runs a model, beside the options of every engine."""

    tensor_parallel_size: int = Field(default=1, ge=1, le=1024)
    """GPUs, or CPU ranks, over which vLLM spreads the model."""
    vllm_options: Settings = Field(default_factory=dict)
    """A further argument of vLLM's own LLM, for example gpu_memory_utilization."""
