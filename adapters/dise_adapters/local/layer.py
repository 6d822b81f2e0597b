"""One layer of Llama, Qwen2, Qwen3, and of Qwen3 and Glm4 as mixtures of experts: attention, then
the feed-forward block.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from dise_adapters.local.attention import SelfAttention, norm_of
from dise_adapters.local.linear import linear


class FeedForward:
    """down(act(gate(x)) * up(x)), with gate and up as one matmul."""

    def __init__(self, block: Any) -> None:
        """Take over the weights of a block of transformers."""
        self._activation = block.act_fn
        self._gate_and_up = linear(block.gate_proj, block.up_proj)
        self._down = linear(block.down_proj)

    def __call__(self, states: Tensor) -> Tensor:
        """Return the block's output [..., d] for states [..., d]."""
        gate, up = self._gate_and_up(states).chunk(2, dim=-1)
        result: Tensor = self._down(self._activation(gate).mul_(up))
        return result


class Experts:
    """A mixture of experts, as transformers computes it: its router, its experts, and those shared
    by all tokens. Every token is routed on its own.
    """

    def __init__(self, block: Any) -> None:
        """Take over the weights of a block of transformers."""
        self._block = block

    def __call__(self, states: Tensor) -> Tensor:
        """Return the block's output [..., d] for states [..., d]."""
        result: Tensor = self._block(states.reshape(1, -1, states.shape[-1]))
        return result.view(states.shape)


class Layer:
    """One transformer layer, with its norms."""

    def __init__(self, layer: Any) -> None:
        """Take over the weights of a layer of transformers."""
        self.attention = SelfAttention(layer.self_attn)
        is_mixture = hasattr(layer.mlp, "experts")
        self._feed_forward = Experts(layer.mlp) if is_mixture else FeedForward(layer.mlp)
        self._attention_norm = norm_of(layer.input_layernorm)
        self._feed_forward_norm = norm_of(layer.post_attention_layernorm)

    def heads(self, states: Tensor) -> Tensor:
        """Return the queries, keys and values [T, H, D] of states [T, d], not yet rotated."""
        return self.attention.heads(self._attention_norm(states))

    def transform(self, states: Tensor, seen: Tensor) -> Tensor:
        """Return the layer's output [..., d]. seen: what attention returned for `states`."""
        states = self.attention.out(seen).add_(states)
        return self._feed_forward(self._feed_forward_norm(states)).add_(states)
