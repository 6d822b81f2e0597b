"""How much memory a model takes beside its weights, and how many tokens' keys and values fit."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import torch
from torch import nn

from dise_adapters.local.devices import free_bytes, is_gpu
from dise_adapters.local.reader import CPU_TOKENS, rows_at_once
from dise_core.errors import InputError
from dise_core.params import EngineConfig

log = logging.getLogger(__name__)

CACHE_TOKENS = 16384
"""Tokens whose keys and values are kept where nobody says how many."""

RESIDUALS = 4
"""Copies of the hidden states that a layer holds beside the outputs of its linear layers."""

COPIES_OF_LOGITS = 3
"""Of the logits that are in memory at one time, with what the readouts make of them."""

GIB = 2**30


def states_per_token(layers: Iterable[nn.Module], hidden: int) -> int:
    """Return how many numbers a forward pass holds at one time for each token, at most: those of
    the widest layer.
    """
    return max((_states(layer, hidden) for layer in layers), default=0)


def _states(layer: nn.Module, hidden: int) -> int:
    linear = [module for module in layer.modules() if isinstance(module, nn.Linear)]
    outputs = sum(module.out_features for module in linear)
    return RESIDUALS * hidden + outputs + _of_experts(layer, hidden)


def _of_experts(layer: nn.Module, hidden: int) -> int:
    """Return the outputs of a token's experts: gate, up, their product, and down."""
    mlp = getattr(layer, "mlp", None)
    if mlp is None or not hasattr(mlp, "experts"):
        return 0
    return int(mlp.gate.top_k * (3 * mlp.experts.intermediate_dim + hidden))


def pass_bytes(states: int, vocab_size: int, config: EngineConfig, kind: torch.Tensor) -> int:
    """Return the memory that a forward pass takes. states: numbers for each token. kind: any tensor
    of the pass's type on its device.
    """
    device = kind.device
    tokens = config.max_batch_tokens if is_gpu(device) else CPU_TOKENS
    logits = rows_at_once(vocab_size, device) * vocab_size * COPIES_OF_LOGITS * 4
    return tokens * states * kind.element_size() + logits


def cache_tokens(
    config: EngineConfig, shape: tuple[int, int, int], kind: torch.Tensor, working: int
) -> int:
    """Return how many tokens' keys and values to keep: max_cache_tokens, or without it 16384, or as
    many as fit on the device beside a forward pass.

    shape: layers, key-value heads, head dimension. kind: any tensor of the cache's type on its
    device. working: the bytes of a forward pass. Raises InputError for more tokens than fit. What
    is free is unknown on some devices; then all fit.
    """
    layers, heads, size = shape
    token, free = layers * 2 * heads * size * kind.element_size(), free_bytes(kind.device)
    most = None if free is None else max(0, free - working) // token
    asked = config.max_cache_tokens
    if asked is None:
        tokens = CACHE_TOKENS if most is None else min(CACHE_TOKENS, most)
        if tokens < CACHE_TOKENS:
            log.warning(
                "keys and values of %d tokens are kept, since no more memory is free", tokens
            )
        return tokens
    if most is not None and free is not None and asked > most:
        raise InputError(
            f"max_cache_tokens={asked} takes {asked * token / GIB:.1f} GiB, and a forward pass "
            f"{working / GIB:.1f} GiB, but {kind.device} has {free / GIB:.1f} GiB free: at most "
            f"{most} tokens fit; or lower max_batch_tokens, or take quantization='int8'",
            "max_cache_tokens",
        )
    return asked
