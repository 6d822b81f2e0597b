"""The options of the engine `vllm`."""

from typing import Annotated

from pydantic import Field

from dise_core.params.base import Params, Settings
from dise_core.params.marks import Mark


class VllmOptions(Params):
    """How vLLM runs a model, beside the options of every engine."""

    tensor_parallel_size: Annotated[int, Mark.MODEL_ARG] = Field(default=1, ge=1, le=1024)
    """GPUs, or CPU ranks, over which vLLM spreads the model."""
    vllm_options: Annotated[Settings, Mark.MODEL_ARG] = Field(default_factory=dict)
    """A further argument of vLLM's own LLM, for example gpu_memory_utilization."""
