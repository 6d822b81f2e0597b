"""The built-in strategies, registered with the same hooks as any plugin."""

from dise_core import hookimpl


@hookimpl
def dise_selectors() -> dict[str, str]:
    """Return the built-in selectors."""
    return {
        "full": "dise_strategies.selectors.whole:Full",
        "response": "dise_strategies.selectors.whole:Response",
        "response-text": "dise_strategies.selectors.whole:ResponseText",
        "first-K": "dise_strategies.selectors.counted:FirstK",
        "mid-K": "dise_strategies.selectors.counted:MidK",
        "last-K": "dise_strategies.selectors.counted:LastK",
        "first-blocks-K": "dise_strategies.selectors.blocks:FirstBlocksK",
        "last-block": "dise_strategies.selectors.blocks:FinalBlock",
        "prompt-last-K": "dise_strategies.selectors.counted:PromptLastK",
        "answer": "dise_strategies.selectors.answer:AnswerRegion",
    }


@hookimpl
def dise_scorers() -> dict[str, str]:
    """Return the built-in scorers."""
    return {
        "dise": "dise_strategies.scorers.dise:DiSE",
        "dise+written": "dise_strategies.scorers.dise_and_written:DiSEAndWritten",
        "interleaved": "dise_strategies.scorers.interleaved:InterleavedRegeneration",
        "loo": "dise_strategies.scorers.leave_one_out:LeaveOneOut",
        "mc": "dise_strategies.scorers.monte_carlo:MonteCarlo",
        "shadow": "dise_strategies.scorers.shadow:Shadow",
        "written": "dise_strategies.scorers.written:Written",
        "ar-perplexity": "dise_strategies.scorers.ar_perplexity:ARPerplexity",
    }


@hookimpl
def dise_length_controllers() -> dict[str, str]:
    """Return the built-in length controllers."""
    return {
        "fixed": "dise_strategies.lengths.fixed:FixedLength",
        "until-end": "dise_strategies.lengths.until_end:UntilEnd",
        "dise-flexible": "dise_strategies.lengths.dise_flexible:DiSEFlexible",
        "daedal": "dise_strategies.lengths.daedal:DAEDAL",
        "cal": "dise_strategies.lengths.cal:CAL",
        "rho-eos": "dise_strategies.lengths.rho_eos:RhoEOS",
    }


@hookimpl
def dise_revisers() -> dict[str, str]:
    """Return the built-in revisers."""
    return {"remask": "dise_strategies.revisers.remask:Remask"}


@hookimpl
def dise_constraints() -> dict[str, str]:
    """Return the built-in constraints."""
    return {
        "regex": "dise_strategies.constraints.regex:Regex",
        "choice": "dise_strategies.constraints.choice:OneOfChoices",
        "json-schema": "dise_strategies.constraints.json_schema:JsonSchema",
        "json-object": "dise_strategies.constraints.json_schema:AnyJsonObject",
    }


@hookimpl
def dise_unmasking_policies() -> dict[str, str]:
    """Return the built-in unmasking policies."""
    return {
        "low-confidence": "dise_strategies.unmasking.ranked:LowConfidence",
        "entropy": "dise_strategies.unmasking.ranked:Entropy",
        "margin": "dise_strategies.unmasking.ranked:Margin",
        "random": "dise_strategies.unmasking.random:RandomUnmasking",
        "origin": "dise_strategies.unmasking.random:Origin",
        "threshold": "dise_strategies.unmasking.parallel:ThresholdUnmasking",
        "sequential": "dise_strategies.unmasking.blockwise:Sequential",
        "low-confidence-dynamic": "dise_strategies.unmasking.blockwise:LowConfidenceDynamic",
        "entropy-bounded": "dise_strategies.unmasking.blockwise:EntropyBounded",
        "entropy-bound-renoise": "dise_strategies.unmasking.renoising:EntropyBoundRenoise",
        "llada2-editing": "dise_strategies.unmasking.blockwise:LLaDA2Editing",
        "sub-blocks": "dise_strategies.unmasking.blockwise:SubBlocks",
    }
