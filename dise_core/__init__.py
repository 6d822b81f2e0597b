"""DiSE: how sure is a diffusion language model of a text? The algorithms, free of torch.

The names exported here and in dise_core.testing are the public API; docs/python.md lists them.
Those for users are in users.py; the others are for authors of plugins and of frameworks.
"""

from dise_core import users
from dise_core.arrays import Floats, Ids, LogProbs, Mask
from dise_core.backend import Backend, Reader
from dise_core.cost import count_nfe
from dise_core.denoise import Denoiser
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
from dise_core.outputs import Evaluation, Generation, TokenReport
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
from dise_core.threads import configure_threads
from dise_core.users import *  # noqa: F403

configure_threads()

__all__ = [
    "Attention",
    "Backend",
    "Bidirectional",
    "BlockCausal",
    "CacheHint",
    "CacheRoom",
    "CacheSlot",
    "Candidates",
    "Canvas",
    "Causal",
    "Confidence",
    "Denoiser",
    "Distribution",
    "Drafts",
    "Evaluation",
    "Floats",
    "Generation",
    "Guidance",
    "Ids",
    "LengthController",
    "LogProbs",
    "Mask",
    "MaskPredictor",
    "ModelInfo",
    "Noise",
    "Plan",
    "Read",
    "Reader",
    "Reading",
    "Readout",
    "RevisedToken",
    "Reviser",
    "Revision",
    "Scorer",
    "Selector",
    "SequenceScorer",
    "SpecialTokens",
    "TokenLogProbs",
    "TokenReport",
    "TokenSequence",
    "Tokenizer",
    "TopLogProbs",
    "UnmaskingPolicy",
    "UnmaskingStep",
    "count_nfe",
    "drive",
    "gather",
    "hookimpl",
    "regenerate",
    "rewritten",
]
__all__ += users.__all__
