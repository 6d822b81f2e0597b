"""Self-attention of Llama, Qwen2 and Qwen3 over a batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, scaled_dot_product_attention

from dise_adapters.local.devices import is_gpu
from dise_adapters.local.kv_cache import CachedPass
from dise_adapters.local.linear import Join, linear


class SelfAttention:
    """One layer's self-attention; its query, key and value projections are one matmul."""

    def __init__(self, attention: Any, join: Join = linear) -> None:
        """Take over the weights of a layer of transformers. join: its linear layers."""
        self.head_dim = attention.head_dim
        self.num_queries = attention.q_proj.out_features // self.head_dim
        self.num_keys = attention.k_proj.out_features // self.head_dim
        self._index, self._scaling = attention.layer_idx, attention.scaling
        self._heads = join(attention.q_proj, attention.k_proj, attention.v_proj)
        self._norms = [norm_of(attention.q_norm), norm_of(attention.k_norm)] if hasattr(
            attention, "q_norm") else []  # fmt: skip
        self.out = join(attention.o_proj)

    def heads(self, states: Tensor) -> Tensor:
        """Return queries, keys and values, concatenated over heads and not yet rotated, as
        [T, H, D] from states [T, d].
        """
        heads: Tensor = self._heads(states).view(len(states), -1, self.head_dim)
        if self._norms:
            query, key, value = torch.split(
                heads, [self.num_queries, self.num_keys, self.num_keys], 1
            )
            heads = torch.cat([self._norms[0](query), self._norms[1](key), value], dim=1)
        return heads

    def rotated(
        self, heads: Tensor, rotation: tuple[Tensor, Tensor], cached: CachedPass | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the rotated queries [B, N, H, D] of `heads`, and the keys and values to attend to:
        those of `heads`, or with a cache those of the whole texts.
        """
        turning, value = torch.split(heads, [self.num_queries + self.num_keys, self.num_keys], 2)
        turned = _rotated(turning, *rotation)
        query, key = torch.split(turned, [self.num_queries, self.num_keys], 2)
        if cached is None:
            return query, key, value
        return query, *cached.update(key, value, self._index)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Return attention's output [B, M, H * D] for queries [B, M, H, D] over keys and values
        [B, N, H', D]. mask: bool, broadcast to [B, 1, M, N]; None if every key is visible.
        """
        query, key, value = (part.transpose(1, 2) for part in (query, key, value))
        groups = self.num_queries // self.num_keys
        # On a GPU, torch's grouped-query attention is slow, or impossible, with a mask.
        if groups > 1 and mask is not None and is_gpu(key.device):
            key, value = (part.repeat_interleave(groups, 1) for part in (key, value))
            groups = 1
        seen = scaled_dot_product_attention(
            query, key, value, mask, scale=self._scaling, enable_gqa=groups > 1
        )
        return seen.transpose(1, 2).flatten(2)


def norm_of(norm: Any) -> Callable[[Tensor], Tensor]:
    """Return an RMS norm as torch's fused function, which passes over the states once."""
    shape, eps = norm.weight.shape, norm.variance_epsilon
    return partial(rms_norm, normalized_shape=shape, weight=norm.weight, eps=eps)


def _rotated(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return heads [B, N, H, D] with rotary position embeddings applied to the first R of their
    dimensions. cos, sin: [B or 1, N, R], their two halves equal.
    """
    size = cos.shape[-1]
    if size < heads.shape[-1]:
        return torch.cat([_rotated(heads[..., :size], cos, sin), heads[..., size:]], dim=-1)
    half = size // 2
    sin = sin[:, :, None, :half]
    turned = heads * cos[:, :, None]
    turned[..., :half].addcmul_(heads[..., half:], sin, value=-1)
    turned[..., half:].addcmul_(heads[..., :half], sin)
    return turned
