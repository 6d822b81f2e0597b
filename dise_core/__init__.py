"""DiSE: how sure is a diffusion language model of a text? The ideas, without a tensor."""

from dise_core.async_llm import AsyncLLM, CanvasUpdate
from dise_core.errors import DiseError, InputError, ModelError, PluginError
from dise_core.hookspecs import hookimpl
from dise_core.interfaces import LengthController, Scorer, Selector, UnmaskingPolicy, UnmaskingStep
from dise_core.llm import LLM
from dise_core.model import (
    Attention,
    Bidirectional,
    BlockCausal,
    Causal,
    MaskPredictor,
    ModelInfo,
    Tokenizer,
)
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
from dise_core.sequence import SpecialTokens, TokenSequence

__all__ = [
    "AsyncLLM",
    "Attention",
    "Bidirectional",
    "BlockCausal",
    "Candidates",
    "CanvasUpdate",
    "Causal",
    "CompletionOutput",
    "DiseError",
    "Distribution",
    "EngineConfig",
    "InputError",
    "LLM",
    "LengthController",
    "MaskPredictor",
    "ModelError",
    "ModelInfo",
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
    "SpecialTokens",
    "Token",
    "TokenLogProbs",
    "TokenSequence",
    "Tokenizer",
    "TopLogProbs",
    "UnmaskingPolicy",
    "UnmaskingStep",
    "Usage",
    "drive",
    "gather",
    "hookimpl",
]
