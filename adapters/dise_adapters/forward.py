"""The forward pass of a transformers model, its last layer only where someone asks.

The last layer's queries, its feed-forward block and the final norm are needed at no other position, so a Llama-like model
of L layers that is asked at few positions does about L - 1 layers of work.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers.models.llama.modeling_llama import LlamaModel
from transformers.models.qwen2.modeling_qwen2 import Qwen2Model

from dise_adapters.kept import Pass
from dise_core.arrays import Ids


class Forward(Protocol):
    """A model's body."""

    kept_shape: tuple[int, int, int] | None
    """Layers, key-value heads and numbers of a head, where keys and values can be kept; else None."""

    def __call__(self, input_ids: Tensor, is_real: Tensor | None, places: Ids, kept: Pass | None = None) -> Tensor:
        """Return the hidden states [R, d] at `places`, ascending int64 [R], in the flattened batch.

        input_ids: int64 [B, N]. is_real: bool [B, N], False where a row is padded at its end; None if no row is. kept: what
        is kept of this pass, and attended to from earlier ones.
        """


class WholeForward:
    """Any model of transformers: all of its states, and of them those asked for."""

    kept_shape: tuple[int, int, int] | None = None

    def __init__(self, model: Any, output: str = "last_hidden_state") -> None:
        self._model = model
        self._output = output

    def __call__(self, input_ids: Tensor, is_real: Tensor | None, places: Ids, kept: Pass | None = None) -> Tensor:
        """Return the states at the places."""
        assert kept is None
        mask = None if is_real is None else is_real.long()
        states: Tensor = self._model(input_ids, attention_mask=mask, use_cache=False)[self._output]
        return states.flatten(0, 1)[torch.from_numpy(places).to(states.device)]


class TrimmedForward:
    """transformers' own Llama or Qwen2."""

    @staticmethod
    def covers(body: Any) -> bool:
        """Return whether the computation of `body`, a model without its head, is the one written here."""
        windows = "sliding_attention" in (getattr(body.config, "layer_types", None) or ())
        return isinstance(body, LlamaModel | Qwen2Model) and not windows and body.config._attn_implementation == "sdpa"

    def __init__(self, body: Any) -> None:
        self._body = body
        self._is_causal = bool(getattr(body.config, "is_causal", True))
        attention = body.layers[0].self_attn
        heads = attention.k_proj.out_features // attention.head_dim
        self.kept_shape = None if self._is_causal else (len(body.layers), heads, attention.head_dim)

    def __call__(self, input_ids: Tensor, is_real: Tensor | None, places: Ids, kept: Pass | None = None) -> Tensor:
        """Return the states at the places."""
        hidden = self._body.embed_tokens(input_ids)
        positions = torch.arange(input_ids.shape[1], device=hidden.device)[None] if kept is None else kept.positions
        rotation = self._body.rotary_emb(hidden, positions)
        is_key = is_real if kept is None or kept.is_key is None else kept.is_key
        mask = None if is_key is None or self._is_causal else is_key[:, None, None, :]
        *layers, last = self._body.layers
        for layer in layers:
            hidden = layer(
                hidden, attention_mask=mask, position_embeddings=rotation, past_key_values=kept, is_causal=self._is_causal
            )
        return self._body.norm(self._asked(last, hidden, rotation, mask, places, kept))  # type: ignore[no-any-return]

    def _asked(
        self,
        layer: Any,
        hidden: Tensor,
        rotation: tuple[Tensor, Tensor],
        mask: Tensor | None,
        places: Ids,
        kept: Pass | None,
    ) -> Tensor:
        """Return what the layer makes of the states [B, N, d] at the places, [R, d]."""
        attention, (batch, length, _) = layer.self_attn, hidden.shape
        queried, is_query = _queries(places, batch, length)
        positions = torch.from_numpy(queried).to(hidden.device)
        if self._is_causal:
            mask = torch.arange(length, device=hidden.device) <= positions[:, None, :, None]
        normed = layer.input_layernorm(hidden)
        query = _heads(attention.q_proj(_at(normed, positions)), attention.head_dim)
        key, value = (_heads(project(normed), attention.head_dim) for project in (attention.k_proj, attention.v_proj))
        query = _rotated(query, *(_at(table.expand(batch, -1, -1), positions) for table in rotation))
        key = _rotated(key, *rotation)
        if kept is not None:
            key, value = kept.update(key, value, attention.layer_idx)
        heard = scaled_dot_product_attention(query, key, value, mask, scale=attention.scaling, enable_gqa=True)
        taken = torch.from_numpy(np.flatnonzero(is_query)).to(hidden.device)
        states = hidden.flatten(0, 1)[torch.from_numpy(places).to(hidden.device)]
        states = states + attention.o_proj(heard.transpose(1, 2).flatten(2).flatten(0, 1)[taken])
        result: Tensor = states + layer.mlp(layer.post_attention_layernorm(states))
        return result


def _queries(places: Ids, batch: int, length: int) -> tuple[Ids, np.ndarray]:
    """Return the positions asked for in each row, int64 [B, M], filled up with 0, and which are asked, bool [B, M]."""
    rows, positions = np.divmod(places, length)
    counts = np.bincount(rows, minlength=batch)
    is_query = np.arange(counts.max()) < counts[:, None]
    queried = np.zeros(is_query.shape, dtype=np.int64)
    queried[is_query] = positions
    return queried, is_query


def _at(states: Tensor, positions: Tensor) -> Tensor:
    """Return states [B, N, d] at positions [B, M], as [B, M, d]."""
    return states.gather(1, positions[:, :, None].expand(-1, -1, states.shape[-1]))


def _heads(states: Tensor, head_dim: int) -> Tensor:
    """Return [B, N, H * D] as [B, H, N, D]."""
    return states.view(*states.shape[:2], -1, head_dim).transpose(1, 2)


def _rotated(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return heads [B, H, N, D] with rotary position embeddings; cos and sin: [B or 1, N, D]."""
    first, second = heads.chunk(2, dim=-1)
    turned = torch.cat([-second, first], dim=-1)
    return heads * cos[:, None] + turned * sin[:, None]
