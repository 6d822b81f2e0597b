"""Self-attention of Llama, Qwen2 and Qwen3 over a batch, and the masks that say who sees whom."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import rms_norm, scaled_dot_product_attention

from dise_adapters.local.kv_cache import CachedPass
from dise_adapters.local.linear import linear
from dise_core.arrays import Ids, Mask
from dise_core.model import Attention, Bidirectional


class SelfAttention:
    """One layer's weights, with those of matmuls that share their input in one."""

    def __init__(self, attention: Any) -> None:
        """Take over the weights of a layer of transformers."""
        self.head_dim = attention.head_dim
        self.num_queries = attention.q_proj.out_features // self.head_dim
        self.num_keys = attention.k_proj.out_features // self.head_dim
        self._index, self._scaling = attention.layer_idx, attention.scaling
        self._heads = linear(attention.q_proj, attention.k_proj, attention.v_proj)
        self._norms = [norm_of(attention.q_norm), norm_of(attention.k_norm)] if hasattr(
            attention, "q_norm") else []  # fmt: skip
        self.out = linear(attention.o_proj)

    def heads(self, states: Tensor) -> Tensor:
        """Return the queries, keys and values [T, H, D] of states [T, d], one after the other and
        not yet rotated.
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
        """Return the queries [B, N, H, D] among the heads, and the keys and values to attend to:
        these, or all that are cached.
        """
        turning, value = torch.split(heads, [self.num_queries + self.num_keys, self.num_keys], 2)
        turned = _rotated(turning, *rotation)
        query, key = torch.split(turned, [self.num_queries, self.num_keys], 2)
        if cached is None:
            return query, key, value
        return query, *cached.update(key, value, self._index)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Return what queries [B, M, H, D] gather from keys and values [B, N, H, D], as
        [B, M, H * D]. mask: bool, broadcast to [B, 1, M, N]; None where every key is seen.
        """
        query, key, value = (part.transpose(1, 2) for part in (query, key, value))
        groups = self.num_queries // self.num_keys
        # On a GPU torch shares keys among heads without a mask only, or slowly.
        if groups > 1 and mask is not None and key.is_cuda:
            key, value = (part.repeat_interleave(groups, 1) for part in (key, value))
            groups = 1
        seen = scaled_dot_product_attention(
            query, key, value, mask, scale=self._scaling, enable_gqa=groups > 1
        )
        return seen.transpose(1, 2).flatten(2)


class Masks:
    """Which keys the queries of one batch see, by the model's attention and the batch's padding."""

    def __init__(
        self, attention: Attention, is_key: Mask | None, positions: Ids, num_keys: int, device: Any
    ) -> None:
        """is_key: which keys are real, bool [B, N]; None if all are. positions: of each token of
        the batch in its text, int64 [B or 1, W]. num_keys: N.
        """
        self._attention, self._positions, self._device = attention, positions, device
        self._key_positions = np.arange(num_keys)
        self._is_key = None if is_key is None else self._on_device(is_key[:, None, None, :])

    def all(self) -> Tensor | None:
        """Return the mask of every token's query, bool [B or 1, 1, W or 1, N]; None sees all."""
        return self._of(self._positions)

    def at(self, columns: Ids) -> Tensor | None:
        """Return the mask of some queries of each text, bool [B or 1, 1, M or 1, N]; columns: where
        they stand in the batch, int64 [B, M].
        """
        num_texts, width = len(columns), self._positions.shape[1]
        positions = np.broadcast_to(self._positions, (num_texts, width))
        return self._of(np.take_along_axis(positions, columns, 1))

    def _of(self, positions: Ids) -> Tensor | None:
        # Full attention needs no mask but the padding's.
        if isinstance(self._attention, Bidirectional):
            return self._is_key
        rows = [self._attention.allows(row, self._key_positions) for row in positions]
        allowed = self._on_device(np.stack(rows)[:, None])
        return allowed if self._is_key is None else allowed & self._is_key

    def _on_device(self, mask: Mask) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(mask)).to(self._device)


def norm_of(norm: Any) -> Callable[[Tensor], Tensor]:
    """Return an RMS norm as torch's own function, which passes over the states once."""
    shape, eps = norm.weight.shape, norm.variance_epsilon
    return partial(rms_norm, normalized_shape=shape, weight=norm.weight, eps=eps)


def _rotated(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return heads [B, N, H, D] with rotary position embeddings; cos and sin: [B or 1, N, D],
    halves alike.
    """
    half = heads.shape[-1] // 2
    sin = sin[:, :, None, :half]
    turned = heads * cos[:, :, None]
    turned[..., :half].addcmul_(heads[..., half:], sin, value=-1)
    turned[..., half:].addcmul_(heads[..., :half], sin)
    return turned
