"""What users need: the names of the package `dise`, all of which dise_core has too."""

from dise_core.async_llm import AsyncLLM
from dise_core.calibration import Calibration
from dise_core.canvas import CanvasToken, CanvasUpdate
from dise_core.catalog import Catalog
from dise_core.decisions import (
    ChoiceAnswer,
    DecisionOutput,
    Diagnostics,
    PredicateAnswer,
    ScoreAnswer,
)
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
    UnreachableError,
)
from dise_core.llm import LLM
from dise_core.outputs import CompletionOutput, LengthStep, RequestOutput, Score, Token, Usage
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

__all__ = [
    "AsyncLLM",
    "Budget",
    "Calibration",
    "CanvasToken",
    "CanvasUpdate",
    "Catalog",
    "CheckpointError",
    "Choice",
    "ChoiceAnswer",
    "ChoiceQuestion",
    "ClosedError",
    "CompletionOutput",
    "DecisionOutput",
    "DecisionParams",
    "Diagnostics",
    "DiseError",
    "EngineConfig",
    "InputError",
    "LLM",
    "LengthStep",
    "Message",
    "ModelError",
    "ModelOutputError",
    "Option",
    "Outcome",
    "OverloadedError",
    "PlanError",
    "PluginError",
    "PredicateAnswer",
    "PredicateQuestion",
    "Prompt",
    "Question",
    "RequestOutput",
    "SamplingParams",
    "Score",
    "ScoreAnswer",
    "ScoreQuestion",
    "ScoringParams",
    "Token",
    "TooLongError",
    "UnknownNameError",
    "UnreachableError",
    "Usage",
]
