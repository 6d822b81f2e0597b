"""The built-in strategies, registered with the same hooks as any plugin."""

from dise_core import Constraint, LengthController, Reviser, Scorer, Selector, UnmaskingPolicy
from dise_core.plugins.hookspecs import hookimpl
from dise_strategies.constraints.choice import OneOfChoices
from dise_strategies.constraints.json_schema import AnyJsonObject, JsonSchema
from dise_strategies.constraints.regex import Regex
from dise_strategies.lengths.cal import CAL
from dise_strategies.lengths.daedal import DAEDAL
from dise_strategies.lengths.dise_flexible import DiSEFlexible
from dise_strategies.lengths.fixed import FixedLength
from dise_strategies.lengths.lr_length import LRLength
from dise_strategies.lengths.rho_eos import RhoEOS
from dise_strategies.lengths.smart_crop import SmartCrop
from dise_strategies.lengths.until_end import UntilEnd
from dise_strategies.revisers.remask import Remask
from dise_strategies.scorers.any_order import AnyOrder
from dise_strategies.scorers.ar_perplexity import ARPerplexity
from dise_strategies.scorers.combined import Combined
from dise_strategies.scorers.dise import DiSE
from dise_strategies.scorers.duel import Duel
from dise_strategies.scorers.greedy_path import GreedyPath
from dise_strategies.scorers.interleaved import InterleavedRegeneration
from dise_strategies.scorers.monte_carlo import DreamMonteCarlo, MonteCarlo, StratifiedMonteCarlo
from dise_strategies.scorers.shadow import Shadow
from dise_strategies.scorers.written import Written
from dise_strategies.selectors.blocks import FinalBlock, FirstBlock, FirstBlocksK
from dise_strategies.selectors.counted import FirstK, LastK, MidK, PromptLastK, ResponseFirstK
from dise_strategies.selectors.whole import Full, PromptOnly, Response, ResponseText
from dise_strategies.unmasking.blockwise import (
    EntropyBounded,
    LLaDA2,
    LLaDA2Editing,
    LowConfidenceDynamic,
    Sequential,
    SubBlocks,
)
from dise_strategies.unmasking.parallel import Factor, ThresholdUnmasking
from dise_strategies.unmasking.random import Origin, RandomUnmasking
from dise_strategies.unmasking.ranked import Entropy, LowConfidence, Margin


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
        "first-blocks-K": FirstBlocksK,
        "last-block": FinalBlock,
        "prompt-last-K": PromptLastK,
        "response-first-K": ResponseFirstK,
    }


@hookimpl
def dise_scorers() -> dict[str, type[Scorer]]:
    """Return the built-in scorers."""
    return {
        "dise": DiSE,
        "interleaved": InterleavedRegeneration,
        "mc": MonteCarlo,
        "mc-llada": StratifiedMonteCarlo,
        "mc-dream": DreamMonteCarlo,
        "shadow": Shadow,
        "greedy-path": GreedyPath,
        "written": Written,
        "duel": Duel,
        "any-order": AnyOrder,
        "ar-perplexity": ARPerplexity,
        "combined": Combined,
    }


@hookimpl
def dise_length_controllers() -> dict[str, type[LengthController]]:
    """Return the built-in length controllers."""
    return {
        "fixed": FixedLength,
        "until-end": UntilEnd,
        "dise-flexible": DiSEFlexible,
        "daedal": DAEDAL,
        "cal": CAL,
        "lr-length": LRLength,
        "rho-eos": RhoEOS,
        "smart-crop": SmartCrop,
    }


@hookimpl
def dise_revisers() -> dict[str, type[Reviser]]:
    """Return the built-in revisers."""
    return {"remask": Remask}


@hookimpl
def dise_constraints() -> dict[str, type[Constraint]]:
    """Return the built-in constraints."""
    return {
        "regex": Regex,
        "choice": OneOfChoices,
        "json-schema": JsonSchema,
        "json-object": AnyJsonObject,
    }


@hookimpl
def dise_unmasking_policies() -> dict[str, type[UnmaskingPolicy]]:
    """Return the built-in unmasking policies."""
    return {
        "low-confidence": LowConfidence,
        "entropy": Entropy,
        "margin": Margin,
        "random": RandomUnmasking,
        "origin": Origin,
        "threshold": ThresholdUnmasking,
        "factor": Factor,
        "sequential": Sequential,
        "low-confidence-dynamic": LowConfidenceDynamic,
        "entropy-bounded": EntropyBounded,
        "llada2": LLaDA2,
        "llada2-editing": LLaDA2Editing,
        "sub-blocks": SubBlocks,
    }
