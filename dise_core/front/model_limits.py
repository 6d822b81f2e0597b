"""Applies a model's limits to a request's options, and those of a gap and of a constraint."""

from typing import TypeVar

from pydantic import BaseModel

from dise_core.errors import InputError
from dise_core.models.attention import BlockCausal, Canvases
from dise_core.models.info import ModelInfo
from dise_core.params.objects import name_of
from dise_core.params.requests import Denoising, SamplingParams, Scoring
from dise_core.scoring.calibration import Calibration
from dise_core.scoring.scorer import Scorer
from dise_core.sequence import as_ids, check_token_ids
from dise_core.writing.length import LengthController
from dise_core.writing.policy import RenoisingPolicy, UnmaskingPolicy

M = TypeVar("M", bound=BaseModel)
P = TypeVar("P", bound=Scoring)

OF_A_SAMPLER = {*Denoising.model_fields, "temperature", "top_p", "seed"} - {
    *Scoring.model_fields, "stop_at",
}  # fmt: skip
"""The options that say how an answer is written."""

ALLOWED = {"temperature": (1.0,), "length": (None, "until-end")}
"""The values that such a sampler heeds, where they are not the default alone."""

RENOISING = "entropy-bound-renoise"
"""How a model of canvases under uniform noise writes, unless the request says otherwise."""


def with_own_policy(params: M, info: ModelInfo) -> M:
    """Return the params with the model's own unmasking policy where they name none."""
    is_default = isinstance(params, SamplingParams) and "unmasking" not in params.model_fields_set
    if not is_default or not _is_renoised(info):
        return params
    return params.model_copy(update={"unmasking": RENOISING})


def _is_renoised(info: ModelInfo) -> bool:
    is_ours = not info.writes_canvases
    return is_ours and isinstance(info.attention, Canvases) and info.noise == "uniform"


def fitted(params: P, info: ModelInfo, calibration: Calibration | None = None) -> P:
    """Return the params as they apply to the model: the block length, the kind of cache
    and the default `length`; and to the calibration that the user named. Raises
    InputError for what a block-causal model cannot do, and for tokens that the model
    lacks.
    """
    length = info.block_length
    changes: dict[str, object] = {}
    if length is not None:
        _check_block_length(params, info, length)
        changes["block_length"] = length
    if isinstance(params, SamplingParams):
        if length is not None:
            _check_blocks(params, length)
        changes["length"] = params.length or ("fixed" if length is None else "until-end")
        is_causal = isinstance(info.attention, BlockCausal)
        if params.cache == "exact" or (is_causal and params.cache != "none"):
            changes["cache"] = "exact" if is_causal else "none"
        if info.noise == "uniform" and params.cache in ("prefix", "dual"):
            raise InputError(
                f"cache={params.cache!r}: {info.name!r:.80} has uniform noise, and what "
                "is hidden changes in every step; leave the cache out",
                "cache",
            )
        _check_tokens(params, info)
        if info.writes_canvases:
            _check_unwritten(params, info)
    params = params.model_copy(update=changes) if changes else params
    return params if calibration is None else calibration.applied(params)


def _check_block_length(params: Scoring, info: ModelInfo, length: int) -> None:
    if "block_length" in params.model_fields_set and params.block_length != length:
        raise InputError(
            f"block_length={params.block_length}: {info.name!r} has blocks of {length} "
            "tokens, which are part of its attention; leave block_length out",
            "block_length",
        )


def _check_blocks(params: SamplingParams, length: int) -> None:
    num_blocks = -(-params.max_tokens // length)
    if params.steps is not None and params.steps < num_blocks:
        raise InputError(
            f"steps={params.steps} is less than one step for each of the {num_blocks} "
            f"blocks of {length} tokens",
            "steps",
        )


def _check_unwritten(params: SamplingParams, info: ModelInfo) -> None:
    """Raise InputError for an option of a sampler that is not ours."""
    for name in sorted(OF_A_SAMPLER & params.model_fields_set):
        value, field = getattr(params, name), SamplingParams.model_fields[name]
        default = field.get_default(call_default_factory=True)
        if value not in ALLOWED.get(name, (default,)):
            raise InputError(
                f"{name}={value!r:.80}: {info.name!r:.80} writes by its own sampler, which takes "
                f"no options; leave {name} out",
                name,
            )


def _check_tokens(params: SamplingParams, info: ModelInfo) -> None:
    """Raise InputError for ids that are no tokens, or if none could be written."""
    for name, ids in (
        ("forbidden_token_ids", params.forbidden_token_ids),
        ("allowed_token_ids", params.allowed_token_ids),
        ("logit_bias", [token for token, _ in params.biases]),
    ):
        check_token_ids(as_ids(ids), info.vocab_size, name)
    unwritten = {info.mask_token_id, *params.forbidden_token_ids} - {None}
    if params.allowed_token_ids and unwritten.issuperset(params.allowed_token_ids):
        raise InputError(
            "none of the allowed tokens may be written: each is forbidden, or the mask",
            "allowed_token_ids",
        )
    if len(unwritten) == info.vocab_size:
        raise InputError(
            "every token is forbidden, so none could be written", "forbidden_token_ids"
        )


def check_constraint(params: SamplingParams, policy: UnmaskingPolicy) -> None:
    """Raise InputError for what a constraint cannot be combined with."""
    if isinstance(policy, RenoisingPolicy):
        raise InputError(
            f"constraint={name_of(params.constraint or '')!r}: unmasking "
            f"{name_of(params.unmasking)!r} hides again what it has written, so that its answers "
            "keep to no constraint; leave the constraint out, or take another model",
            "constraint",
        )
    conflicts = {
        "length": params.length not in ("fixed", "until-end"),
        "unmasking": policy.edits,
        "stop": len(params.stop) > 0,
        "allowed_token_ids": len(params.allowed_token_ids) > 0,
    }
    for name, is_set in conflicts.items():
        if is_set:
            raise InputError(
                f"{name}={getattr(params, name)!r:.80} cannot be combined with a "
                "constraint; leave one out",
                name,
            )


def heeding(policy: UnmaskingPolicy, params: SamplingParams, info: ModelInfo) -> SamplingParams:
    """Return the params, under a policy that never writes the end token without it.
    Raises InputError for settings about the end token of a model that has none, and for a
    policy that is not about the model's noise.
    """
    _check_renoising(policy, params, info)
    end = info.special.eos_id
    for name in ("logits_eos_inf", "confidence_eos_eot_inf"):
        if getattr(policy, name) and end is None:
            raise InputError(
                f"{name} needs an end token, and {info.name!r} has none", "unmasking_settings"
            )
    if not policy.logits_eos_inf:
        return params
    return params.model_copy(update={"forbidden_token_ids": (*params.forbidden_token_ids, end)})


def _check_renoising(policy: UnmaskingPolicy, params: SamplingParams, info: ModelInfo) -> None:
    is_renoising, name = isinstance(policy, RenoisingPolicy), name_of(params.unmasking)
    if not is_renoising and _is_renoised(info):
        raise InputError(
            f"unmasking {name!r} keeps what it has written, and {info.name!r:.80} was trained to "
            f"be given its canvases noised again in every step; use {RENOISING!r}",
            "unmasking",
        )
    if is_renoising and info.noise != "uniform":
        raise InputError(
            f"unmasking {name!r} puts random tokens back in every step, and {info.name!r:.80} "
            "was trained on masks; use 'low-confidence' or another",
            "unmasking",
        )
    for option in {"steps", "tokens_per_step"} & params.model_fields_set if is_renoising else ():
        raise InputError(
            f"{option}={getattr(params, option)}: unmasking {name!r} has steps of its own; leave "
            f"{option} out, and give it unmasking_settings, such as max_denoising_steps",
            option,
        )
    if is_renoising and params.is_drawn:
        raise InputError(
            f"temperature={params.temperature}: unmasking {name!r} draws at temperatures of its "
            "own; leave temperature out, and give it unmasking_settings, such as t_max and t_min",
            "temperature",
        )


def in_gap(params: SamplingParams, info: ModelInfo) -> SamplingParams:
    """Return the params with which no end token is written. Raises InputError for a
    model whose attention hides what follows the gap.
    """
    if info.block_length is not None or info.is_autoregressive:
        kind = "block-causal" if info.block_length is not None else "auto-regressive"
        raise InputError(
            f"{info.name!r} is {kind}, so it does not see what follows a gap; take a "
            "model of full attention, such as LLaDA or Dream, or generate without a "
            "suffix",
            "suffix",
        )
    forbidden = (*params.forbidden_token_ids, *sorted(info.special.eos_ids))
    return params.model_copy(update={"forbidden_token_ids": forbidden})


def check_gap(params: SamplingParams, controller: LengthController, scorer: Scorer) -> None:
    """Raise InputError for a controller or a scorer that cannot handle a gap."""
    if not controller.fills_gaps:
        raise InputError(
            f"length {params.length!r} fills no gap: it looks for an answer's end; take "
            "'fixed', with the gap's length as max_tokens, or 'cal', which finds it",
            "length",
        )
    if scorer.asks == "judge":
        raise InputError(
            f"scorer {params.scorer!r} asks a judge, which does not see what follows a "
            "gap; take one that the model itself answers, such as 'dise'",
            "scorer",
        )
