"""The body of a transformers model; its last layer runs only at the positions that are read.

The last layer's attention, its feed-forward block and the final norm are needed at no other
position, so a Llama-like model of L layers that is read at few positions does about L - 1 layers of
work. The first layer's queries, keys and values depend on the token alone, so they are computed
once for each distinct token: most tokens of a canvas are masks.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from transformers.models.glm4_moe.modeling_glm4_moe import Glm4MoeModel
from transformers.models.llama.modeling_llama import LlamaModel
from transformers.models.qwen2.modeling_qwen2 import Qwen2Model
from transformers.models.qwen3.modeling_qwen3 import Qwen3Model
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeModel

from dise_adapters.local.attention import Masks, norm_of
from dise_adapters.local.kv_cache import CachedPass
from dise_adapters.local.layer import Layer
from dise_adapters.local.padding import key_multiple, padded_rows
from dise_adapters.local.unpadded import Unpadded
from dise_core.arrays import Ids, Mask
from dise_core.model import Attention, Causal


class Body(Protocol):
    """A model without its head."""

    cache_shape: tuple[int, int, int] | None
    """Layers, key-value heads and head dimension; None if the body cannot use a KV cache."""

    max_padding: float
    """The largest share of a batch that may be padding."""

    multiple: int
    """Texts, and the keys that they attend to, are padded to a multiple of this length."""

    def __call__(
        self, input_ids: Ids, is_real: Mask | None, rows: Ids, cached: CachedPass | None = None
    ) -> Tensor:
        """Return the hidden states [R, d] at `rows` of the flattened batch, int64 [R], ascending.

        input_ids: int64 [B, N]. is_real: bool [B, N], False at padding, which follows a text; None
        without padding. cached: what to store in the KV cache, and what to read from it.
        """


class WholeBody:
    """Any transformers model: computes all hidden states and returns those asked for."""

    cache_shape: tuple[int, int, int] | None = None
    max_padding = 0.25
    multiple = 1

    def __init__(self, model: Any, output: str = "last_hidden_state") -> None:
        self._model = model
        self._output = output

    def __call__(
        self, input_ids: Ids, is_real: Mask | None, rows: Ids, cached: CachedPass | None = None
    ) -> Tensor:
        """Return the states of the rows."""
        assert cached is None
        ids, where = _on(self._model.device, input_ids, rows)
        mask = None if is_real is None else torch.from_numpy(is_real).to(ids.device, torch.int64)
        states: Tensor = self._model(ids, attention_mask=mask, use_cache=False)[self._output]
        return states.flatten(0, 1)[where]


class OwnBody:
    """Our forward pass of Llama, Qwen2 and Qwen3: unpadded except in attention, and the last layer
    only at the positions that are read.
    """

    max_padding = 1 / 3

    @staticmethod
    def covers(body: Any) -> bool:
        """Return whether this class can compute `body`, a transformers model without its head."""
        windows = "sliding_attention" in (getattr(body.config, "layer_types", None) or ())
        known = LlamaModel | Qwen2Model | Qwen3Model | Qwen3MoeModel | Glm4MoeModel
        is_known = isinstance(body, known)
        return is_known and not windows and body.config._attn_implementation == "sdpa"

    def __init__(self, body: Any, attention: Attention) -> None:
        """Take over the body's weights layer by layer, so that none is in memory twice; the body
        can then no longer run.
        """
        self._embed, self._rotation = body.embed_tokens, body.rotary_emb
        self._norm, self._attention = norm_of(body.norm), attention
        self._layers = [Layer(body.layers.pop(0)) for _ in range(len(body.layers))]
        first, is_causal = self._layers[0].attention, isinstance(attention, Causal)
        shape = (len(self._layers), first.num_keys, first.head_dim)
        self.cache_shape = None if is_causal else shape
        self.multiple = key_multiple(body.norm.weight.device)

    def __call__(
        self, input_ids: Ids, is_real: Mask | None, rows: Ids, cached: CachedPass | None = None
    ) -> Tensor:
        """Return the states of the rows."""
        device, (batch, length) = self._embed.weight.device, input_ids.shape
        unpadded = Unpadded.of(is_real, (batch, length), device)
        asked = _Asked.of(rows, unpadded, device)
        # Up to its attention the first layer sees tokens alone: compute each distinct one once.
        ids, which = np.unique(input_ids, return_inverse=True)
        distinct, token_of = _on(device, padded_rows(ids, device), which.reshape(batch, length))
        positions = np.arange(length)[None] if cached is None else cached.positions
        masks = self._masks(is_real, positions, cached, device)
        mask, last_mask = masks.all(), masks.at(asked.columns)
        states = self._embed(distinct)
        rotation = self._rotation(states, *_on(device, positions))
        hidden = states[unpadded.packed(token_of)]
        heads = self._layers[0].heads(states)[token_of]
        for layer, following in pairwise(self._layers):
            parts = layer.attention.rotated(heads, rotation, cached)
            seen = layer.attention.attend(*parts, mask)
            hidden = layer.transform(hidden, unpadded.packed(seen))
            heads = unpadded.padded(following.heads(hidden))
        last = self._layers[-1]
        query, key, value = last.attention.rotated(heads, rotation, cached)
        query = query.flatten(0, 1)[asked.queries]
        seen = last.attention.attend(query, key, value, last_mask).flatten(0, 1)[asked.answers]
        result: Tensor = self._norm(last.transform(hidden[asked.tokens], seen)[: len(rows)])
        return result

    def _masks(
        self, is_real: Mask | None, positions: Ids, cached: CachedPass | None, device: torch.device
    ) -> Masks:
        if cached is None or cached.read is None:
            return Masks(self._attention, is_real, positions, positions.shape[1], device)
        return Masks(self._attention, cached.is_key, positions, cached.read.shape[1], device)


@dataclass(frozen=True, slots=True)
class _Asked:
    """The R rows that are read, R padded by padded_rows, also as M queries per text, padded with 0.

    queries: rows of the flattened padded batch, int64 [B, M]. columns: the same as columns of the
    batch, on the host. tokens: the unpadded index of each of the R rows, int64 [R]. answers: the
    index of each among the flattened queries, int64 [R].
    """

    queries: Tensor
    columns: Ids
    tokens: Tensor
    answers: Tensor

    @classmethod
    def of(cls, rows: Ids, unpadded: Unpadded, device: torch.device) -> _Asked:
        """Return the indices with which the last layer selects the rows of the padded batch."""
        batch, length = unpadded.shape
        counts = np.bincount(rows // length, minlength=batch)
        is_query = np.arange(counts.max()) < counts[:, None]
        queries = np.zeros(is_query.shape, np.int64)
        queries[is_query] = rows
        wanted = (unpadded.which(rows), np.flatnonzero(is_query))
        tokens, answers = (padded_rows(each, device) for each in wanted)
        on_device = _on(device, queries, tokens, answers)
        return cls(on_device[0], queries % length, *on_device[1:])


def _on(device: torch.device, *arrays: np.ndarray) -> list[Tensor]:
    return [torch.from_numpy(array).to(device) for array in arrays]
