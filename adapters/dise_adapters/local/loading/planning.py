"""The memory that a model takes beside its weights, and how many cached tokens fit."""

import logging
from collections.abc import Iterable

import torch
from torch import nn

from dise_adapters.local.decoder.kv_cache import KEYS_A_TOKEN
from dise_adapters.local.devices import free_bytes, is_gpu
from dise_adapters.local.reading.reader import CPU_TOKENS, rows_at_once
from dise_core import Attention, Bidirectional, Causal, EngineConfig, InputError

log = logging.getLogger(__name__)

CACHE_TOKENS = 16384
"""Tokens whose keys and values are kept of texts under way where nobody says how many; on
CUDA more where they take CACHE_SHARE of what is free, as far as one pass can read them.
"""

CACHE_SHARE = 0.5

PREFIX_TOKENS = 8192
"""The same of their beginnings, for later texts."""

RESIDUALS = 4
"""Copies of the hidden states that a layer holds beside its linear layers' outputs."""

COPIES_OF_LOGITS = 3
"""Of the logits that are in memory at one time, with what the readouts make of them."""

GIB = 2**30

ALLOCATED = 1.25
"""What torch takes of a GPU's memory for each byte planned. At full size up to 1.07 are
in use (benchmarks/fake_gpu.py, and windows and short texts of unequal lengths), and what
is freed is not filled again to the last byte.
"""

RESERVE = GIB
"""What cuBLAS and the kernels, loaded at first use, take of it besides."""


def states_per_token(layers: Iterable[nn.Module], hidden: int) -> int:
    """Return how many numbers a pass holds for each token: those of the widest layer."""
    return max((_states(layer, hidden) for layer in layers), default=0)


def _states(layer: nn.Module, hidden: int) -> int:
    linear = [module for module in layer.modules() if isinstance(module, nn.Linear)]
    numbers = RESIDUALS * hidden + sum(module.out_features for module in linear)
    mlp = getattr(layer, "mlp", None)
    if mlp is not None and hasattr(mlp, "experts"):
        # States in and out; and gate, up, their product, or what is weighted in float32 and sorted.
        widest = max(3 * mlp.experts.intermediate_dim, 4 * hidden)
        numbers += int(mlp.gate.top_k * (2 * hidden + widest))
    return numbers


def pass_bytes(states: int, vocab_size: int, config: EngineConfig, example: torch.Tensor) -> int:
    """Return the memory that a forward pass takes. states: numbers for each token.
    example: any tensor of the pass's type on its device.
    """
    device = example.device
    tokens = config.max_batch_tokens if is_gpu(device) else CPU_TOKENS
    logits = rows_at_once(vocab_size, device) * vocab_size * COPIES_OF_LOGITS * 4
    needed = tokens * states * example.element_size() + logits
    return int(ALLOCATED * needed) + RESERVE if is_gpu(device) else needed


def cache_tokens(
    config: EngineConfig,
    attention: Attention,
    shape: tuple[int, int, int],
    example: torch.Tensor,
    working: int,
) -> tuple[int, int]:
    """Return how many tokens' keys and values to keep, of texts under way and of their
    beginnings: as many as the options say, or else as many of the defaults as fit on the
    device beside a forward pass: no texts of a model that writes none, no beginnings that
    are not exact.

    shape: layers, key-value heads, head dimension. example: any tensor of the cache's
    type on its device. working: the bytes of a forward pass. Raises InputError for more
    tokens than fit. What is free is unknown on some devices; then all fit.
    """
    layers, heads, size = shape
    token, free = layers * 2 * heads * size * example.element_size(), free_bytes(example.device)
    capacity = None if free is None else max(0, free - working) // token
    counts, of_texts = list[int](), CACHE_TOKENS
    if capacity is not None and example.device.type == "cuda":
        most_read = config.max_batch_tokens * KEYS_A_TOKEN
        of_texts = max(of_texts, min(int(CACHE_SHARE * capacity), most_read))
    defaults = {
        "max_cache_tokens": 0 if isinstance(attention, Causal) else of_texts,
        "prefix_cache_tokens": 0 if isinstance(attention, Bidirectional) else PREFIX_TOKENS,
    }
    for name, default in defaults.items():
        requested: int | None = getattr(config, name) if default else None
        tokens = default if requested is None else requested
        if capacity is not None and free is not None and tokens > capacity:
            if requested is not None:
                raise InputError(
                    f"{name}={tokens} takes {tokens * token / GIB:.1f} GiB, and a forward pass "
                    f"{working / GIB:.1f} GiB, but {example.device} has {free / GIB:.1f} GiB free: "
                    f"at most {capacity} tokens fit; or lower max_batch_tokens, or take "
                    "quantization='int8'",
                    name,
                )
            log.warning("%s is %d, since no more memory is free", name, capacity)
            tokens = capacity
        counts.append(tokens)
        capacity = None if capacity is None else capacity - tokens
    return counts[0], counts[1]
