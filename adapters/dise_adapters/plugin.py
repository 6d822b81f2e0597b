"""The hooks of the built-in adapters, which are those of any plugin."""

from __future__ import annotations

from dise_adapters.countdown import CountdownPredictor
from dise_adapters.dream import DreamPredictor
from dise_adapters.engines import TransformersBackend, VllmBackend
from dise_adapters.llada import LLaDAPredictor
from dise_adapters.llama import LlamaPredictor
from dise_adapters.vllm.canvas import VllmCanvasPredictor
from dise_adapters.vllm.server import VllmServerPredictor
from dise_core import MaskPredictor, hookimpl
from dise_core.backend import Backends


@hookimpl
def dise_mask_predictors() -> dict[str, type[MaskPredictor]]:
    """Return the built-in adapters and the embedded model."""
    return {
        "llada": LLaDAPredictor,
        "dream": DreamPredictor,
        "llama": LlamaPredictor,
        "countdown": CountdownPredictor,
        "vllm-server": VllmServerPredictor,
        "vllm-canvas": VllmCanvasPredictor,
    }


@hookimpl
def dise_engines() -> Backends:
    """Return the built-in engines."""
    return {"transformers": TransformersBackend, "vllm": VllmBackend}
