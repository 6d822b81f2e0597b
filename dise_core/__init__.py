"""DiSE: how sure is a diffusion language model of a text? The ideas, without a tensor."""

from dise_core.async_llm import AsyncLLM
from dise_core.canvas import CanvasUpdate
from dise_core.errors import DiseError, InputError, ModelError, PluginError
from dise_core.hookspecs import hookimpl
from dise_core.interfaces import (
    LengthController,
    MaskPredictor,
    Scorer,
    Selector,
    UnmaskingPolicy,
    UnmaskingStep,
)
from dise_core.llm import LLM
from dise_core.outputs import CompletionOutput, RequestOutput, Score, Token, Usage
from dise_core.params import EngineConfig, SamplingParams, ScoringParams
from dise_core.reading import (
    Candidates,
    Distribution,
    Plan,
    Read,
    Reading,
    TokenLogProbs,
    TopLogProbs,
    drive,
    gather,
)
from dise_core.sequence import TokenSequence

__all__ = [
    "AsyncLLM",
    "CanvasUpdate",
    "LLM",
    "Candidates",
    "CompletionOutput",
    "DiseError",
    "Distribution",
    "EngineConfig",
    "InputError",
    "LengthController",
    "MaskPredictor",
    "ModelError",
    "Plan",
    "PluginError",
    "Read",
    "Reading",
    "RequestOutput",
    "SamplingParams",
    "Score",
    "Scorer",
    "ScoringParams",
    "Selector",
    "Token",
    "TokenLogProbs",
    "TokenSequence",
    "TopLogProbs",
    "UnmaskingPolicy",
    "UnmaskingStep",
    "Usage",
    "drive",
    "gather",
    "hookimpl",
]
