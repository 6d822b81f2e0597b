"""DiSE: how sure is a diffusion language model of a text? The algorithms, free of torch.

The names exported here and in dise_core.testing are the public API; docs/python.md lists them.
"""

from dise_core.arrays import Floats, Ids, LogProbs, Mask
from dise_core.async_llm import AsyncLLM
from dise_core.backend import Backend, Reader
from dise_core.calibration import Calibration
from dise_core.canvas import CanvasToken, CanvasUpdate
from dise_core.catalog import Catalog
from dise_core.cost import count_nfe
from dise_core.decisions import (
    ChoiceAnswer,
    DecisionOutput,
    Diagnostics,
    PredicateAnswer,
    ScoreAnswer,
)
from dise_core.denoise import Denoiser
from dise_core.engine import Budget, Outcome
from dise_core.errors import (
    CheckpointError,
    ClosedError,
    DiseError,
    InputError,
    ModelError,
    ModelOutputError,
    OverloadedError,
    PlanError,
    PluginError,
    TooLongError,
    UnknownNameError,
)
from dise_core.hookspecs import hookimpl
from dise_core.interfaces import (
    Drafts,
    LengthController,
    Reviser,
    Scorer,
    Selector,
    UnmaskingPolicy,
    UnmaskingStep,
)
from dise_core.llm import LLM
from dise_core.model import (
    Attention,
    Bidirectional,
    BlockCausal,
    CacheRoom,
    Causal,
    MaskPredictor,
    ModelInfo,
    Tokenizer,
)
from dise_core.noise import Noise
from dise_core.outputs import (
    CompletionOutput,
    Evaluation,
    Generation,
    LengthStep,
    RequestOutput,
    Score,
    Token,
    TokenReport,
    Usage,
)
from dise_core.params import DecisionParams, EngineConfig, SamplingParams, ScoringParams
from dise_core.prompts import Message, Prompt
from dise_core.questions import (
    Choice,
    ChoiceQuestion,
    Option,
    PredicateQuestion,
    Question,
    ScoreQuestion,
)
from dise_core.reading import (
    CacheHint,
    CacheSlot,
    Candidates,
    Canvas,
    Confidence,
    Distribution,
    Guidance,
    Plan,
    Read,
    Reading,
    Readout,
    TokenLogProbs,
    TopLogProbs,
    drive,
    gather,
)
from dise_core.revisions import RevisedToken, Revision, rewritten
from dise_core.scoring import SequenceScorer, regenerate
from dise_core.sequence import SpecialTokens, TokenSequence

__all__ = [
    "AsyncLLM",
    "Attention",
    "Backend",
    "Bidirectional",
    "BlockCausal",
    "Budget",
    "CacheHint",
    "CacheRoom",
    "CacheSlot",
    "Calibration",
    "Candidates",
    "Canvas",
    "CanvasToken",
    "CanvasUpdate",
    "Catalog",
    "Causal",
    "CheckpointError",
    "Choice",
    "ChoiceAnswer",
    "ChoiceQuestion",
    "ClosedError",
    "CompletionOutput",
    "Confidence",
    "DecisionOutput",
    "DecisionParams",
    "Denoiser",
    "Diagnostics",
    "DiseError",
    "Distribution",
    "Drafts",
    "EngineConfig",
    "Evaluation",
    "Floats",
    "Generation",
    "Guidance",
    "Ids",
    "InputError",
    "LLM",
    "LengthController",
    "LengthStep",
    "LogProbs",
    "Mask",
    "MaskPredictor",
    "Message",
    "ModelError",
    "ModelInfo",
    "ModelOutputError",
    "Noise",
    "Option",
    "Outcome",
    "OverloadedError",
    "Plan",
    "PlanError",
    "PluginError",
    "PredicateAnswer",
    "PredicateQuestion",
    "Prompt",
    "Question",
    "Read",
    "Reader",
    "Reading",
    "Readout",
    "RequestOutput",
    "RevisedToken",
    "Reviser",
    "Revision",
    "SamplingParams",
    "Score",
    "ScoreAnswer",
    "ScoreQuestion",
    "Scorer",
    "ScoringParams",
    "Selector",
    "SequenceScorer",
    "SpecialTokens",
    "Token",
    "TokenLogProbs",
    "TokenReport",
    "TokenSequence",
    "Tokenizer",
    "TooLongError",
    "TopLogProbs",
    "UnknownNameError",
    "UnmaskingPolicy",
    "UnmaskingStep",
    "Usage",
    "count_nfe",
    "drive",
    "gather",
    "hookimpl",
    "regenerate",
    "rewritten",
]
