"""The built-in adapters, registered with the same hooks as any plugin."""

from dise_adapters.embedded import (
    CountdownBlocksPredictor,
    CountdownPredictor,
    WordProblemsPredictor,
)
from dise_adapters.families.a2d import A2D_QWEN2, A2D_QWEN3
from dise_adapters.families.causal import CAUSAL
from dise_adapters.families.diffcoder import DIFFCODER
from dise_adapters.families.diffullama import DIFFUGPT, DIFFULLAMA
from dise_adapters.families.diffusion_gemma import DIFFUSION_GEMMA
from dise_adapters.families.dream import DREAM
from dise_adapters.families.fast_dllm import FAST_DLLM
from dise_adapters.families.illada import ILLADA
from dise_adapters.families.llada import LLADA
from dise_adapters.families.llada2 import LLADA2
from dise_adapters.families.llada_moe import LLADA_MOE
from dise_adapters.families.masked_lm import MASKED_LM
from dise_adapters.families.open_dcoder import OPEN_DCODER
from dise_adapters.families.rnd1 import RND1
from dise_adapters.families.sdar import SDAR, SDAR_MOE
from dise_adapters.local.engine import TransformersBackend
from dise_adapters.predictor import predictor_of
from dise_adapters.vllm.engine import VllmBackend
from dise_core import MaskPredictor, hookimpl
from dise_core.models.backend import Backends

FAMILIES = {
    "llada": LLADA,
    "dream": DREAM,
    "a2d-qwen3": A2D_QWEN3,
    "a2d-qwen2": A2D_QWEN2,
    "sdar": SDAR,
    "sdar-moe": SDAR_MOE,
    "fast-dllm-v2": FAST_DLLM,
    "stable-diffcoder": DIFFCODER,
    "illada": ILLADA,
    "open-dcoder": OPEN_DCODER,
    "masked-lm": MASKED_LM,
    "llada-moe": LLADA_MOE,
    "rnd1": RND1,
    "llada2": LLADA2,
    "diffullama": DIFFULLAMA,
    "diffugpt": DIFFUGPT,
    "diffusion-gemma": DIFFUSION_GEMMA,
    "llama": CAUSAL,
}


@hookimpl
def dise_mask_predictors() -> dict[str, type[MaskPredictor] | str]:
    """Return the adapters of families, of the embedded models, and of vLLM servers."""
    return {
        **{
            name: predictor_of(family, "published" if family is CAUSAL else "random")
            for name, family in FAMILIES.items()
        },
        "countdown": CountdownPredictor,
        "countdown-blocks": CountdownBlocksPredictor,
        "word-problems": WordProblemsPredictor,
        "vllm-server": "dise_adapters.vllm.server.predictor:VllmServerPredictor",
    }


@hookimpl
def dise_engines() -> Backends:
    """Return the built-in engines."""
    return {"transformers": TransformersBackend, "vllm": VllmBackend}
