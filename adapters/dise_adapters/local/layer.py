"""One layer of Llama, Qwen2, Qwen3, and of Qwen3 and Glm4 as mixtures of experts: attention, then
the feed-forward block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from dise_adapters.local.attention import SelfAttention, norm_of
from dise_adapters.local.linear import Join, layer_of, linear


class FeedForward:
    """down(act(gate(x)) * up(x)), with gate and up as one matmul."""

    def __init__(self, block: Any, join: Join = linear) -> None:
        """Take over the weights of a block of transformers."""
        self._activation = block.act_fn
        self._gate_and_up = join(block.gate_proj, block.up_proj)
        self._down = join(block.down_proj)

    def __call__(self, states: Tensor) -> Tensor:
        """Return the block's output [..., d] for states [..., d]."""
        gate, up = self._gate_and_up(states).chunk(2, dim=-1)
        result: Tensor = self._down(self._activation(gate).mul_(up))
        return result


class Experts:
    """A mixture of experts, as transformers computes it: its router, its experts, and those shared
    by all tokens. Every token is routed on its own.
    """

    def __init__(self, block: Any, join: Join = linear) -> None:
        """Take over the weights of a block of transformers. join: if it is not `linear`, the layers
        of each expert, of which the block holds one tensor for all.
        """
        self._block = block
        if join is linear:
            return
        experts = block.experts
        weights = zip(experts.gate_up_proj, experts.down_proj, strict=True)
        block.experts = SeparateExperts(experts.act_fn, weights, join)
        if hasattr(block, "shared_experts"):
            shared = FeedForward(block.shared_experts, join)
            del block.shared_experts
            block.shared_experts = shared

    def __call__(self, states: Tensor) -> Tensor:
        """Return the block's output [..., d] for states [..., d]."""
        result: Tensor = self._block(states.reshape(1, -1, states.shape[-1]))
        return result.view(states.shape)


class SeparateExperts(nn.Module):
    """The experts of a block of transformers, each with layers of its own."""

    def __init__(
        self,
        activation: Callable[[Tensor], Tensor],
        weights: Iterable[tuple[Tensor, Tensor]],
        join: Join,
    ) -> None:
        """weights: each expert's gate and up, [2 * inner, d], and its down, [d, inner]."""
        super().__init__()
        self._activation = activation
        self._layers = [(join(layer_of(both)), join(layer_of(down))) for both, down in weights]

    def forward(self, states: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """Return what the experts make of states [T, d]. chosen: int64 [T, K], which experts a
        token has; weights: [T, K], theirs.
        """
        result = torch.zeros_like(states)
        for index in torch.unique(chosen).tolist():
            gate_and_up, down = self._layers[index]
            token, place = torch.where(chosen == index)
            gate, up = gate_and_up(states[token]).chunk(2, dim=-1)
            answer = down(self._activation(gate) * up) * weights[token, place, None]
            result.index_add_(0, token, answer.to(result.dtype))
        return result


class Layer:
    """One transformer layer, with its norms."""

    def __init__(self, layer: Any, join: Join = linear) -> None:
        """Take over the weights of a layer of transformers. join: its linear layers."""
        self.attention = SelfAttention(layer.self_attn, join)
        is_mixture = hasattr(layer.mlp, "experts")
        self._feed_forward = (
            Experts(layer.mlp, join) if is_mixture else FeedForward(layer.mlp, join)
        )
        self._attention_norm = norm_of(layer.input_layernorm)
        self._feed_forward_norm = norm_of(layer.post_attention_layernorm)

    def heads(self, states: Tensor) -> Tensor:
        """Return the queries, keys and values [T, H, D] of states [T, d], not yet rotated."""
        return self.attention.heads(self._attention_norm(states))

    def transform(self, states: Tensor, seen: Tensor) -> Tensor:
        """Return the layer's output [..., d]. seen: what attention returned for `states`."""
        states = self.attention.out(seen).add_(states)
        return self._feed_forward(self._feed_forward_norm(states)).add_(states)
