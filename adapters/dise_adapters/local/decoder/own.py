"""Our forward pass of Llama, Qwen2 and Qwen3; its last layer runs only at the positions
read.

The last layer's attention, its feed-forward block and the final norm are needed at no
other position, so a Llama-like model of L layers that is read at few positions does about
L - 1 layers of work. The first layer's queries, keys and values depend on the token
alone, so they are computed once for each distinct token: most tokens of a canvas are
masks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, silu

from dise_adapters.local.decoder.batch import TextBatch
from dise_adapters.local.decoder.integers import Int8Linear
from dise_adapters.local.decoder.layer import Layer, Traits, norm_of, weights_of
from dise_adapters.local.decoder.linear import MakeLinear, linear
from dise_adapters.local.decoder.masks import Masks
from dise_adapters.local.decoder.padding import CPU_MULTIPLE, GPU_QUERIES, Unpadded, padded_rows
from dise_adapters.local.decoder.weights import WeightPlaces
from dise_adapters.local.devices import is_gpu, on_device
from dise_core import Attention, Ids

KNOWN = ("LlamaModel", "Qwen2Model", "Qwen3Model", "Qwen3MoeModel", "Glm4MoeModel")
"""The classes of transformers that OwnBody computes: importing them takes seconds."""

Rotation = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Returns cosines and sines [B, N, D] for positions [B, N], in the dtype of the states
given first.
"""


@dataclass(frozen=True, slots=True, eq=False)
class DecoderParts:
    """What a decoder is made of. embedding: [V, d]. head: returns its weight and bias;
    None where the embedding is its weight. norm: the last one's weight, [d], on the
    device and in the type of the states. layer: takes a layer's number, in order, and
    returns its weights by transformers' names, and its mixture of experts if it has one.
    It keeps neither: nothing is in memory twice.
    """

    embedding: Tensor | Int8Linear
    head: Callable[[], tuple[Tensor, Tensor | None]] | None
    norm: Tensor
    rotation: Rotation
    traits: Traits
    num_layers: int
    layer: Callable[[int], tuple[Mapping[str, Tensor], nn.Module | None]]


def decoder_parts(body: Any, head: nn.Linear, device: torch.device) -> DecoderParts:
    """Return a body's parts, its layers moved one by one: it can then no longer run."""
    is_tied = head.weight is body.embed_tokens.weight
    for part in (body.embed_tokens, body.norm, body.rotary_emb):
        part.to(device)
    activations = (layer.mlp.act_fn for layer in body.layers if hasattr(layer.mlp, "act_fn"))
    head_dim, epsilon = body.layers[0].self_attn.head_dim, body.norm.variance_epsilon
    traits = Traits(head_dim, epsilon, next(activations, silu))

    def take(_: int) -> tuple[Mapping[str, Tensor], nn.Module | None]:
        layer = body.layers.pop(0).to(device)
        return weights_of(layer), layer.mlp if hasattr(layer.mlp, "experts") else None

    def take_head() -> tuple[Tensor, Tensor | None]:
        weights = weights_of(head.to(device))
        return weights["weight"], weights.get("bias")

    words, norm = body.embed_tokens.weight.detach(), body.norm.weight.detach()
    ends = (words, None if is_tied else take_head, norm)
    return DecoderParts(*ends, body.rotary_emb, traits, len(body.layers), take)


class OwnBody:
    """Our forward pass: unpadded, and the last layer only at positions that are read."""

    max_padding = 1 / 3
    takes_overlays = True

    @staticmethod
    def covers(body: Any) -> bool:
        """Return whether this class computes `body`, a model without its head."""
        is_ours = type(body).__module__.startswith("transformers.models.")
        if not is_ours or type(body).__name__ not in KNOWN:
            return False
        windows = "sliding_attention" in (getattr(body.config, "layer_types", None) or ())
        # With some rotary embeddings keys depend on the longest text of the batch.
        is_fixed = body.rotary_emb.rope_type not in ("dynamic", "longrope")
        return not windows and is_fixed and body.config._attn_implementation == "sdpa"

    def __init__(
        self, parts: DecoderParts, attention: Attention, make_linear: MakeLinear = linear
    ) -> None:
        words, self._rotation = parts.embedding, parts.rotation
        self._embed = (
            words.rows if isinstance(words, Int8Linear) else partial(embedding, weight=words)
        )
        self._device, self._attention = parts.norm.device, attention
        self._norm = norm_of(parts.norm, parts.traits.epsilon)
        self._layers = [
            Layer(index, *parts.layer(index), parts.traits, make_linear)
            for index in range(parts.num_layers)
        ]
        self.places: WeightPlaces = {"model.norm.weight": [parts.norm]}
        """Where its weights are, by transformers' names, without the embedding's."""
        for number, layer in enumerate(self._layers):
            prefix, places = f"model.layers.{number}.", layer.places
            self.places |= {prefix + name: places[name] for name in places}
        # Layers, key-value heads and head dimension of what a KV cache keeps.
        self.cache_shape = (len(self._layers), self._layers[0].num_keys, parts.traits.head_dim)
        self.multiple = 1 if is_gpu(self._device) else CPU_MULTIPLE

    def __call__(self, batch: TextBatch, rows: Ids) -> Tensor:
        device, shape, cached = self._device, batch.input_ids.shape, batch.cached
        unpadded = Unpadded.of(batch.is_real, shape, device)
        last_rows = _LastRows.of(rows, unpadded, device)
        # Up to its attention the first layer sees tokens alone: compute each distinct one
        # once.
        ids, inverse = np.unique(batch.input_ids, return_inverse=True)
        distinct, token_of = on_device(device, padded_rows(ids, device), inverse.reshape(shape))
        masks = Masks(self._attention, batch, device, is_wide=True)
        mask, last_mask = masks.all(), masks.at(last_rows.columns)
        states = self._embed(distinct)
        rotation = self._rotation(states, *on_device(device, batch.positions))
        hidden = states[unpadded.packed(token_of)]
        heads = self._layers[0].heads(states)[token_of]
        for layer, following in pairwise(self._layers):
            attended = layer.attend(*layer.rotated(heads, rotation, cached), mask)
            del heads  # before the feed-forward block makes what is widest
            hidden = layer.transform(hidden, unpadded.packed(attended))
            heads = unpadded.padded(following.heads(hidden))
        last_layer = self._layers[-1]
        query, key, value = last_layer.rotated(heads, rotation, cached)
        query = query.flatten(0, 1)[last_rows.queries]
        attended = last_layer.attend(query, key, value, last_mask).flatten(0, 1)[last_rows.answers]
        del heads, query, key, value
        return self._norm(last_layer.transform(hidden[last_rows.tokens], attended)[: len(rows)])


@dataclass(frozen=True, slots=True)
class _LastRows:
    """The R rows that are read, R padded by padded_rows, also as M queries per text,
    padded with 0.

    queries: rows of the flattened padded batch, int64 [B, M]. columns: the same as
    columns of the batch, on the host. tokens: the unpadded index of each of the R rows,
    int64 [R]. answers: the index of each among the flattened queries, int64 [R].
    """

    queries: Tensor
    columns: Ids
    tokens: Tensor
    answers: Tensor

    @classmethod
    def of(cls, rows: Ids, unpadded: Unpadded, device: torch.device) -> _LastRows:
        """Return the indices by which the last layer selects rows of the padded batch."""
        batch, length = unpadded.shape
        counts = np.bincount(rows // length, minlength=batch)
        width = counts.max() + -counts.max() % (GPU_QUERIES if is_gpu(device) else CPU_MULTIPLE)
        is_query = np.arange(width) < counts[:, None]
        queries = np.zeros(is_query.shape, np.int64)
        queries[is_query] = rows
        tokens = padded_rows(unpadded.which(rows), device)
        answers = padded_rows(np.flatnonzero(is_query), device)
        on_queries, on_tokens, on_answers = on_device(device, queries, tokens, answers)
        return cls(on_queries, queries % length, on_tokens, on_answers)
