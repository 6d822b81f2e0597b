"""One layer of Llama, Qwen2, Qwen3, or of Qwen3 and Glm4 as mixtures of experts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, rms_norm, scaled_dot_product_attention

from dise_adapters.local.decoder.kv_cache import CachedPass
from dise_adapters.local.decoder.linear import MakeLinear, linear
from dise_adapters.local.decoder.weights import WeightPlaces, built
from dise_adapters.local.devices import is_gpu


@dataclass(frozen=True, slots=True)
class Traits:
    """What weights do not tell. epsilon: of norms. activation: of feed-forward blocks."""

    head_dim: int
    epsilon: float
    activation: Callable[[Tensor], Tensor]


class Layer:
    """One transformer layer, with its norms; its query, key and value projections are one
    matmul.

    In the comments of shapes: H query heads, then H' each of keys and values, of
    dimension D.
    """

    def __init__(
        self,
        number: int,
        weights: Mapping[str, Tensor],
        mixture: nn.Module | None,
        traits: Traits,
        make_linear: MakeLinear = linear,
    ) -> None:
        """weights: by transformers' names. mixture: its experts, if it has any."""
        self._number, self._head_dim = number, traits.head_dim
        self._num_queries = len(weights["self_attn.q_proj.weight"]) // traits.head_dim
        self.num_keys = len(weights["self_attn.k_proj.weight"]) // traits.head_dim
        self.places: WeightPlaces = {}
        build = partial(built, make_linear, weights, self.places)
        self._heads = build(*(f"self_attn.{part}_proj" for part in "qkv"))
        self._head_norms = [
            norm_of(weights[f"self_attn.{part}_norm.weight"], traits.epsilon)
            for part in "qk"
            if f"self_attn.{part}_norm.weight" in weights
        ]
        self._out = build("self_attn.o_proj")
        self._feed_forward = (
            FeedForward(build, traits.activation, "mlp.")
            if mixture is None
            else Experts(mixture, make_linear)
        )
        self._attention_norm, self._feed_forward_norm = (
            norm_of(weights[f"{name}_layernorm.weight"], traits.epsilon)
            for name in ("input", "post_attention")
        )
        if make_linear is linear:
            experts = {} if mixture is None else mixture.state_dict(prefix="mlp.")
            places = {name: [weight] for name, weight in {**weights, **experts}.items()}
            self.places = places | self.places

    def heads(self, states: Tensor) -> Tensor:
        """Return unrotated queries, keys and values [T, H + 2 H', D] of states [T, d]."""
        projected: Tensor = self._heads(self._attention_norm(states))
        heads = projected.view(len(states), -1, self._head_dim)
        if self._head_norms:
            sizes = [self._num_queries, self.num_keys, self.num_keys]
            query, key, value = torch.split(heads, sizes, 1)
            norm_queries, norm_keys = self._head_norms
            heads = torch.cat([norm_queries(query), norm_keys(key), value], dim=1)
        return heads

    def rotated(
        self, heads: Tensor, rotation: tuple[Tensor, Tensor], cached: CachedPass | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the rotated queries [B, N, H, D] of `heads`, and the keys and values to
        attend to: those of `heads`, or with a cache those of the whole texts.
        """
        sizes = [self._num_queries, self.num_keys]
        turning, value = torch.split(heads, [sum(sizes), self.num_keys], 2)
        query, key = torch.split(_rotated(turning, *rotation), sizes, 2)
        if cached is not None:
            key, value = cached.update(key, value, self._number)
        return query, key, value

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Return attention's output [B, M, H * D] for queries [B, M, H, D] over keys and
        values [B, N, H', D]. mask: bool, broadcast to [B, 1, M, N], or to more keys that
        nothing sees; None if every key is visible.
        """
        if mask is not None and (more := mask.shape[-1] - key.shape[1]):
            key, value = (pad(part, (0, 0, 0, 0, 0, more)) for part in (key, value))
        query, key, value = (part.transpose(1, 2) for part in (query, key, value))
        groups = self._num_queries // self.num_keys
        # On a GPU, torch's grouped-query attention is slow, or impossible, with a mask.
        if groups > 1 and mask is not None and is_gpu(key.device):
            key, value = (part.repeat_interleave(groups, 1) for part in (key, value))
            groups = 1
        scale = self._head_dim**-0.5
        attended = scaled_dot_product_attention(
            query, key, value, mask, scale=scale, enable_gqa=groups > 1
        )
        return attended.transpose(1, 2).flatten(2)

    def transform(self, states: Tensor, attended: Tensor) -> Tensor:
        """Return the layer's output [..., d]. attended: what `attend` returned."""
        states = self._out(attended).add_(states)
        return self._feed_forward(self._feed_forward_norm(states)).add_(states)


class FeedForward:
    """down(act(gate(x)) * up(x)), with gate and up as one matmul."""

    def __init__(
        self,
        build: Callable[..., nn.Module],
        activation: Callable[[Tensor], Tensor],
        prefix: str = "",
    ) -> None:
        """build: joins layers of transformers' names, which begin with `prefix`."""
        self._activation = activation
        self._gate_and_up = build(f"{prefix}gate_proj", f"{prefix}up_proj")
        self._down = build(f"{prefix}down_proj")

    def __call__(self, states: Tensor) -> Tensor:
        """Return the block's output [..., d] for states [..., d]."""
        gate, up = self._gate_and_up(states).chunk(2, dim=-1)
        result: Tensor = self._down(self._activation(gate).mul_(up))
        return result


class Experts:
    """A mixture of experts as transformers computes it, each token routed on its own."""

    def __init__(self, block: Any, make_linear: MakeLinear = linear) -> None:
        """Take over a block of transformers. make_linear: if it is not `linear`, it makes
        the layers of each expert, of which the block holds one tensor for all.
        """
        self._block = block
        if make_linear is linear:
            return
        experts = block.experts
        kind = JoinedExperts if JoinedExperts.covers(experts) else SeparateExperts
        block.experts = kind(experts, make_linear)
        if hasattr(block, "shared_experts"):
            shared = block.shared_experts
            del block.shared_experts
            build = partial(built, make_linear, weights_of(shared), {})
            block.shared_experts = FeedForward(build, shared.act_fn)

    def __call__(self, states: Tensor) -> Tensor:
        result: Tensor = self._block(states.reshape(1, -1, states.shape[-1]))
        return result.view(states.shape)


class SeparateExperts(nn.Module):
    """The experts of a block of transformers, each with layers of its own."""

    def __init__(self, experts: Any, make_linear: MakeLinear) -> None:
        """experts: of transformers, each weight of all one tensor, [E, out, in]."""
        super().__init__()
        self._activation = experts.act_fn
        pairs = zip(experts.gate_up_proj.detach(), experts.down_proj.detach(), strict=True)
        self._layers = [[make_linear([weight], None) for weight in pair] for pair in pairs]

    def forward(self, states: Tensor, experts: Tensor, weights: Tensor) -> Tensor:
        """Return what the experts make of states [T, d]. experts: those of each token,
        int64 [T, K]; weights: theirs, [T, K].
        """
        result = torch.zeros_like(states)
        for index in torch.unique(experts).tolist():
            gate_and_up, down = self._layers[index]
            token, place = torch.where(experts == index)
            gate, up = gate_and_up(states[token]).chunk(2, dim=-1)
            answer = down(self._activation(gate) * up) * weights[token, place, None]
            result.index_add_(0, token, answer.to(result.dtype))
        return result


class JoinedExperts(nn.Module):
    """The same on a GPU: each pass unpacks the weights of all, so that it neither loops
    over experts nor waits to know which are asked.
    """

    @staticmethod
    def covers(experts: Any) -> bool:
        """Return whether torch multiplies such experts of transformers on their device."""
        weight = experts.down_proj  # [E, d, inner]
        is_there = hasattr(nn.functional, "grouped_mm") and is_gpu(weight.device)
        is_aligned = not any(size % 8 for size in weight.shape[1:])
        return is_there and is_aligned and weight.dtype == torch.bfloat16

    def __init__(self, experts: Any, make_linear: MakeLinear) -> None:
        super().__init__()
        self._activation, self._num_experts = experts.act_fn, len(experts.down_proj)
        weights = experts.gate_up_proj, experts.down_proj
        self._gate_and_up, self._down = (
            make_linear([weight.detach().flatten(0, 1)], None) for weight in weights
        )

    def forward(self, states: Tensor, experts: Tensor, weights: Tensor) -> Tensor:
        chosen, order = experts.flatten().sort()
        places = torch.arange(max(len(order), self._num_experts), device=order.device)
        following = places[: self._num_experts] + 1
        ends = torch.searchsorted(chosen, following, out_int32=True)
        inner = self._multiply(self._gate_and_up, states[order // experts.shape[1]], ends)
        gate, up = inner.chunk(2, dim=-1)
        answers = self._multiply(self._down, self._activation(gate).mul_(up), ends)
        back = torch.empty_like(order).scatter_(0, order, places[: len(order)])
        of_tokens = answers[back].view(*experts.shape, -1)
        return torch.bmm(weights.to(states.dtype)[:, None], of_tokens)[:, 0]

    def _multiply(self, layer: Any, states: Tensor, ends: Tensor) -> Tensor:
        """Return what experts make of states sorted by them. ends: of each's, int32 [E]."""
        weight = layer.weight(states.dtype).view(self._num_experts, -1, states.shape[1])
        result: Tensor = nn.functional.grouped_mm(states, weight.transpose(1, 2), offs=ends)
        return result


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """Return a module's weights by name."""
    return {name: weight.detach() for name, weight in module.named_parameters()}


def norm_of(weight: Tensor, epsilon: float) -> Callable[[Tensor], Tensor]:
    """Return an RMS norm as torch's fused function, which passes over the states once."""
    return partial(rms_norm, normalized_shape=weight.shape, weight=weight, eps=epsilon)


def _rotated(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return heads [B, N, H, D] with rotary position embeddings applied to the first R of
    their dimensions. cos, sin: [B or 1, N, R], their two halves equal.
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
