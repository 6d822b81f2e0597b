"""What users need beside LLM and AsyncLLM: names that the package `dise` has from here."""

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
from dise_core.front.fields import Field
from dise_core.front.outputs import CompletionOutput, RequestOutput, Token, Usage
from dise_core.models.prompts import Prompt
from dise_core.models.tokenizer import Message
from dise_core.params.engine import EngineConfig
from dise_core.params.requests import SamplingParams, ScoringParams
from dise_core.plans.outcome import Budget, Outcome
from dise_core.plugins.catalog import Catalog
from dise_core.scoring.calibration import Calibration
from dise_core.scoring.explaining import ExplainedRead, ExplainedToken, Explanation
from dise_core.scoring.score import Score
from dise_core.writing.canvas import CanvasToken, CanvasUpdate
from dise_core.writing.generation import LengthStep

__all__ = [
    "Budget", "Calibration", "CanvasToken", "CanvasUpdate", "Catalog", "CheckpointError",
    "ClosedError", "CompletionOutput", "DiseError", "EngineConfig", "ExplainedRead",
    "ExplainedToken", "Explanation", "Field", "InputError", "LengthStep", "Message", "ModelError",
    "ModelOutputError", "Outcome", "OverloadedError", "PlanError", "PluginError", "Prompt",
    "RequestOutput", "SamplingParams", "Score", "ScoringParams", "Token", "TooLongError",
    "UnknownNameError", "UnreachableError", "Usage",
]  # fmt: skip
