"""DiSE: how sure is a diffusion language model of a text? The algorithms, free of torch.

The names exported here and in dise_core.testing are the public API; docs/reference lists
them. Those for users are in users.py; the others are for authors of plugins and of
frameworks.
"""

from typing import TYPE_CHECKING

from dise_core import users
from dise_core.arrays import Floats, Ids, LogProbs, Mask
from dise_core.constraints.constraint import Constraint
from dise_core.lazy import lazily
from dise_core.models.attention import Attention, Bidirectional, BlockCausal, Canvases, Causal
from dise_core.models.backend import Backend, LoadedModule, Reader
from dise_core.models.completion import completed, noise_levels
from dise_core.models.info import ModelInfo
from dise_core.models.predictor import Ability, CacheRoom, MaskPredictor
from dise_core.models.tokenizer import Tokenizer
from dise_core.noise import Noise
from dise_core.params.base import Params
from dise_core.plans.cost import count_nfe
from dise_core.plans.plan import Plan, drive, gather
from dise_core.plans.reading import CacheHint, CacheSlot, Canvas, Guidance, Read, Reading
from dise_core.plans.readouts import (
    Candidates,
    Confidence,
    Distribution,
    Readout,
    TokenLogProbs,
    TopLogProbs,
)
from dise_core.plugins.catalog import catalog_of
from dise_core.plugins.discovery import installed_catalog
from dise_core.plugins.entry import Entry
from dise_core.plugins.hookspecs import INTERFACE_VERSION, hookimpl
from dise_core.scoring.score import Bounds, Evaluation, TokenReport
from dise_core.scoring.scorer import Scorer, Selector
from dise_core.scoring.sequence_scorer import SequenceScorer, regenerate
from dise_core.scoring.terms import Terms
from dise_core.sequence import SpecialTokens, TokenSequence
from dise_core.threads import configure_threads
from dise_core.users import *  # noqa: F403
from dise_core.writing.denoise import Denoiser
from dise_core.writing.generation import Generation
from dise_core.writing.length import LengthController
from dise_core.writing.policy import Drafts, RenoisingPolicy, UnmaskingPolicy, UnmaskingStep
from dise_core.writing.reviser import Reviser
from dise_core.writing.revisions import RevisedToken, Revision, rewritten

if TYPE_CHECKING:
    from dise_core.front.async_llm import AsyncLLM
    from dise_core.front.llm import LLM

HOMES = {"dise_core.front.async_llm": "AsyncLLM", "dise_core.front.llm": "LLM"}
"""Where the doors are: who wants a strategy's names does not import what runs it."""

configure_threads()

__getattr__ = lazily(__name__, HOMES)

__all__ = [
    "INTERFACE_VERSION", "Ability", "AsyncLLM", "LLM", "Attention", "Backend", "Bidirectional",
    "BlockCausal", "Bounds", "CacheHint", "CacheRoom", "CacheSlot", "Candidates", "Canvases",
    "Canvas", "Causal", "Confidence", "Constraint", "Denoiser", "Distribution", "Drafts",
    "Entry", "Evaluation", "Floats", "Generation", "Guidance", "Ids", "LengthController",
    "LoadedModule", "LogProbs", "Mask",
    "MaskPredictor", "ModelInfo", "Noise", "Params", "Plan", "Read",
    "Reader", "Reading", "Readout", "RenoisingPolicy", "RevisedToken", "Reviser", "Revision",
    "Scorer", "Selector", "SequenceScorer", "SpecialTokens", "Terms", "TokenLogProbs",
    "TokenReport", "TokenSequence", "Tokenizer", "TopLogProbs", "UnmaskingPolicy",
    "UnmaskingStep", "catalog_of", "completed", "count_nfe", "drive", "gather",
    "hookimpl", "installed_catalog", "noise_levels", "regenerate", "rewritten",
]  # fmt: skip
__all__ += users.__all__
