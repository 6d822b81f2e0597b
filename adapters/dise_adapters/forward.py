"""The forward pass of a transformers model, its last layer only where someone asks.

The last layer's queries, its feed-forward block and the final norm are needed at no other position,
so a Llama-like model of L layers that is asked at few positions does about L - 1 layers of work.
What the first layer asks and tells knows its token alone, so it is computed once for each distinct
one: most tokens of a text that is being written are masks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import rms_norm, scaled_dot_product_attention
from transformers.models.llama.modeling_llama import LlamaModel
from transformers.models.qwen2.modeling_qwen2 import Qwen2Model

from dise_adapters.kept import Pass
from dise_adapters.packed import filled_up, linear
from dise_adapters.ragged import Ragged
from dise_core.arrays import Ids, Mask

CPU_MULTIPLE = 8
"""Attention on a CPU is made of products so small that those with 61 keys take longer than those
with 64.
"""


class Forward(Protocol):
    """A model's body."""

    kept_shape: tuple[int, int, int] | None
    """Layers, key-value heads and numbers of a head, where keys and values can be kept; else None.
    """

    max_padding: float
    """The share of a batch that padding may take."""

    multiple: int
    """The length of a batch, and that of what it attends to, is filled up to a multiple of this."""

    def __call__(
        self, input_ids: Ids, is_real: Mask | None, places: Ids, kept: Pass | None = None
    ) -> Tensor:
        """Return the hidden states [R, d] at `places`, ascending int64 [R], in the flattened batch.

        input_ids: int64 [B, N]. is_real: bool [B, N], False where a row is padded at its end; None
        if no row is. kept: what is kept of this pass, and attended to from earlier ones.
        """


class WholeForward:
    """Any model of transformers: all of its states, and of them those asked for."""

    kept_shape: tuple[int, int, int] | None = None
    max_padding = 0.25
    multiple = 1

    def __init__(self, model: Any, output: str = "last_hidden_state") -> None:
        self._model = model
        self._output = output

    def __call__(
        self, input_ids: Ids, is_real: Mask | None, places: Ids, kept: Pass | None = None
    ) -> Tensor:
        """Return the states at the places."""
        assert kept is None
        ids, where = _on(self._model.device, input_ids, places)
        mask = None if is_real is None else torch.from_numpy(is_real).to(ids.device, torch.int64)
        states: Tensor = self._model(ids, attention_mask=mask, use_cache=False)[self._output]
        return states.flatten(0, 1)[where]


class LlamaForward:
    """The computation of Llama and Qwen2, its last layer only where someone asks, and without
    padding but in attention.
    """

    max_padding = 1 / 3

    @staticmethod
    def covers(body: Any) -> bool:
        """Return whether the computation of `body`, a model without its head, is the one written
        here.
        """
        windows = "sliding_attention" in (getattr(body.config, "layer_types", None) or ())
        return (
            isinstance(body, LlamaModel | Qwen2Model)
            and not windows
            and body.config._attn_implementation == "sdpa"
        )

    def __init__(self, body: Any) -> None:
        """Take over the body's weights, layer by layer, so that none is there twice. The body
        cannot run any more.
        """
        self._embed, self._rotation, self._norm = (
            body.embed_tokens,
            body.rotary_emb,
            _norm(body.norm),
        )
        self._is_causal = bool(getattr(body.config, "is_causal", True))
        self._layers = [_Layer(body.layers.pop(0)) for _ in range(len(body.layers))]
        first = self._layers[0]
        self.kept_shape = (
            None if self._is_causal else (len(self._layers), first.num_keys, first.head_dim)
        )
        self.multiple = CPU_MULTIPLE if body.norm.weight.device.type == "cpu" else 1

    def __call__(
        self, input_ids: Ids, is_real: Mask | None, places: Ids, kept: Pass | None = None
    ) -> Tensor:
        """Return the states at the places."""
        device, (batch, length) = self._embed.weight.device, input_ids.shape
        lines = Ragged.of(is_real, (batch, length), device)
        asked = _Asked.of(places, lines, device)
        ids, which = np.unique(input_ids, return_inverse=True)
        distinct, token_of = _on(device, filled_up(ids, device), which.reshape(batch, length))
        positions = torch.arange(length, device=device)[None] if kept is None else kept.positions
        mask = None if self._is_causal else _mask(is_real, kept, device)
        states = self._embed(distinct)
        rotation = self._rotation(states, positions)
        hidden = states[lines.packed(token_of)]
        heads = self._layers[0].heads(states)[token_of]
        for layer, following in pairwise(self._layers):
            heard = layer.attend(
                *layer.rotated(heads, rotation, kept), mask, is_causal=self._is_causal
            )
            hidden = layer.transform(hidden, lines.packed(heard))
            heads = lines.padded(following.heads(hidden))
        last = self._layers[-1]
        query, key, value = last.rotated(heads, rotation, kept)
        if self._is_causal:
            mask = torch.arange(length, device=device) <= (asked.queries % length)[:, None, :, None]
        heard = last.attend(query.flatten(0, 1)[asked.queries], key, value, mask).flatten(0, 1)[
            asked.answers
        ]
        result: Tensor = self._norm(last.transform(hidden[asked.tokens], heard)[: len(places)])
        return result


@dataclass(frozen=True, slots=True)
class _Asked:
    """The R places that are read, filled up to a number of rows that products like, and as M
    queries of each text.

    queries: places in the flattened padded form, int64 [B, M], filled up with 0. tokens: which
    tokens stand at the R places;
    answers: which of the flattened queries they are; both int64 [R].
    """

    queries: Tensor
    tokens: Tensor
    answers: Tensor

    @classmethod
    def of(cls, places: Ids, lines: Ragged, device: torch.device) -> _Asked:
        """Return the places as the last layer asks for them."""
        batch, length = lines.shape
        counts = np.bincount(places // length, minlength=batch)
        is_query = np.arange(counts.max()) < counts[:, None]
        queries = np.zeros(is_query.shape, np.int64)
        queries[is_query] = places
        tokens, answers = (
            filled_up(each, device) for each in (lines.which(places), np.flatnonzero(is_query))
        )
        return cls(*_on(device, queries, tokens, answers))


class _Layer:
    """One layer's weights, with those of products that share their input in one."""

    def __init__(self, layer: Any) -> None:
        attention, feed_forward = layer.self_attn, layer.mlp
        self.head_dim = attention.head_dim
        self.num_queries = attention.q_proj.out_features // self.head_dim
        self.num_keys = attention.k_proj.out_features // self.head_dim
        self._index, self._scaling, self._activation = (
            attention.layer_idx,
            attention.scaling,
            feed_forward.act_fn,
        )
        self._attention_norm, self._transform_norm = (
            _norm(layer.input_layernorm),
            _norm(layer.post_attention_layernorm),
        )
        self._heads = linear(attention.q_proj, attention.k_proj, attention.v_proj)
        self._out = linear(attention.o_proj)
        self._gate_and_up = linear(feed_forward.gate_proj, feed_forward.up_proj)
        self._down = linear(feed_forward.down_proj)

    def heads(self, states: Tensor) -> Tensor:
        """Return the queries, keys and values [T, H, D] of states [T, d], one after the other and
        not yet rotated.
        """
        heads: Tensor = self._heads(self._attention_norm(states))
        return heads.view(len(states), -1, self.head_dim)

    def rotated(
        self, heads: Tensor, rotation: tuple[Tensor, Tensor], kept: Pass | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the queries [B, N, H, D] among the heads, and the keys and values to attend to:
        these, or all kept.
        """
        turning, value = torch.split(
            heads, [self.num_queries + self.num_keys, self.num_keys], dim=2
        )
        query, key = torch.split(
            _rotated(turning, *rotation), [self.num_queries, self.num_keys], dim=2
        )
        return (
            (query, key, value) if kept is None else (query, *kept.update(key, value, self._index))
        )

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        is_causal: bool = False,
    ) -> Tensor:
        """Return what queries [B, M, H, D] hear of keys and values [B, N, H, D], as [B,
        M, H * D].
        """
        query, key, value = (part.transpose(1, 2) for part in (query, key, value))
        groups = self.num_queries // self.num_keys
        if (
            groups > 1 and mask is not None and key.is_cuda
        ):  # there torch groups heads without a mask only, or slowly
            key, value, groups = (
                key.repeat_interleave(groups, 1),
                value.repeat_interleave(groups, 1),
                1,
            )
        heard = scaled_dot_product_attention(
            query, key, value, mask, scale=self._scaling, is_causal=is_causal, enable_gqa=groups > 1
        )
        return heard.transpose(1, 2).flatten(2)

    def transform(self, states: Tensor, heard: Tensor) -> Tensor:
        """Return the layer's output [..., d] from its input and what was heard."""
        states = self._out(heard).add_(states)
        gate, up = self._gate_and_up(self._transform_norm(states)).chunk(2, dim=-1)
        result: Tensor = self._down(self._activation(gate).mul_(up)).add_(states)
        return result


def _norm(norm: Any) -> Callable[[Tensor], Tensor]:
    """Return the norm as torch's own function, which passes over the states once."""
    return partial(
        rms_norm, normalized_shape=norm.weight.shape, weight=norm.weight, eps=norm.variance_epsilon
    )


def _on(device: torch.device, *arrays: np.ndarray) -> list[Tensor]:
    return [torch.from_numpy(array).to(device) for array in arrays]


def _mask(is_real: Mask | None, kept: Pass | None, device: torch.device) -> Tensor | None:
    """Return which keys are real, bool [B, 1, 1, N]; None if all are."""
    is_key = is_real if kept is None or kept.read is None else kept.is_key
    return None if is_key is None else torch.from_numpy(is_key).to(device)[:, None, None, :]


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
