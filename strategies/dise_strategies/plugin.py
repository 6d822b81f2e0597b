"""The hooks of the built-in strategies, which are those of any plugin."""

from __future__ import annotations

from dise_core import LengthController, Scorer, Selector, UnmaskingPolicy, hookimpl
from dise_strategies.lengths.fixed import FixedLength
from dise_strategies.scorers.dise import DiSE
from dise_strategies.selectors.blocks import FirstBlock, LastBlock
from dise_strategies.selectors.counted import FirstK, LastK, MidK, PromptLastK, ResponseFirstK
from dise_strategies.selectors.whole import Full, PromptOnly, Response, ResponseText
from dise_strategies.unmasking.low_confidence import LowConfidence
from dise_strategies.unmasking.random import RandomUnmasking


@hookimpl
def dise_selectors() -> dict[str, type[Selector]]:
    """Return the built-in selectors."""
    return {
        "full": Full,
        "prompt": PromptOnly,
        "response": Response,
        "response-text": ResponseText,
        "first-K": FirstK,
        "mid-K": MidK,
        "last-K": LastK,
        "first-block": FirstBlock,
        "last-block": LastBlock,
        "prompt-last-K": PromptLastK,
        "response-first-K": ResponseFirstK,
    }


@hookimpl
def dise_scorers() -> dict[str, type[Scorer]]:
    """Return the built-in scorers."""
    return {"dise": DiSE}


@hookimpl
def dise_length_controllers() -> dict[str, type[LengthController]]:
    """Return the built-in length controllers."""
    return {"fixed": FixedLength}


@hookimpl
def dise_unmasking_policies() -> dict[str, type[UnmaskingPolicy]]:
    """Return the built-in unmasking policies."""
    return {"low-confidence": LowConfidence, "random": RandomUnmasking}
