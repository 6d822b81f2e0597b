"""Llama, Qwen2 and Qwen3 as bare modules, loaded layer by layer straight to the device.

OwnBody computes these models itself and needs only their weights. Importing transformers' classes
for them takes longer than all the rest of a start, so they are used only where a checkpoint is of
any other kind, or does not fit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from dise_adapters.checkpoint.weights import stored_weights
from dise_adapters.local.stored import StoredWeights

if TYPE_CHECKING:
    from dise_adapters.families.family import Checkpoint

SETTINGS = frozenset(
    {"hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim"}
    | {"intermediate_size", "vocab_size", "max_position_embeddings", "rope_parameters"}
    | {"rms_norm_eps", "tie_word_embeddings", "use_sliding_window", "is_causal"}
)
"""The settings that are understood here; transformers loads a model with any other."""

DTYPES = ("F32", "BF16", "F16")
"""The types of weights that are loaded here."""

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a dense decoder. has_bias: of its queries, keys and values. has_norms: of the
    heads of its queries and keys.
    """

    hidden: int
    inner: int
    layers: int
    heads: int
    key_heads: int
    head_dim: int
    vocabulary: int
    epsilon: float
    theta: float
    is_tied: bool
    has_bias: bool = False
    has_norms: bool = False

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Shape | None:
        """Return the shape that a checkpoint's settings describe; None for any other model."""
        family, given = checkpoint.family, checkpoint.settings or {}
        name = family.model_class
        is_plain = not (family.split or family.head or checkpoint.gguf_file)
        if name not in ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"):
            return None
        if not given or not is_plain or not SETTINGS.issuperset(given):
            return None
        heads = given["num_attention_heads"]
        return cls(
            given["hidden_size"],
            given["intermediate_size"],
            given["num_hidden_layers"],
            heads,
            given["num_key_value_heads"],
            given.get("head_dim") or given["hidden_size"] // heads,
            given["vocab_size"],
            given["rms_norm_eps"],
            given["rope_parameters"]["rope_theta"],
            given["tie_word_embeddings"],
            name == "Qwen2ForCausalLM",
            name == "Qwen3ForCausalLM",
        )


def _linear(num_inputs: int, num_outputs: int, has_bias: bool = False) -> nn.Linear:
    return nn.Linear(num_inputs, num_outputs, bias=has_bias, device="meta")


class Norm(nn.Module):
    """The weight of an RMS norm."""

    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight, self.variance_epsilon = nn.Parameter(torch.empty(size, device="meta")), epsilon


class Attention(nn.Module):
    """The weights of self-attention."""

    def __init__(self, shape: Shape, index: int) -> None:
        super().__init__()
        size = self.head_dim = shape.head_dim
        self.layer_idx, self.scaling = index, size**-0.5
        self.q_proj = _linear(shape.hidden, shape.heads * size, has_bias=shape.has_bias)
        self.k_proj = _linear(shape.hidden, shape.key_heads * size, has_bias=shape.has_bias)
        self.v_proj = _linear(shape.hidden, shape.key_heads * size, has_bias=shape.has_bias)
        self.o_proj = _linear(shape.heads * size, shape.hidden)
        if shape.has_norms:
            self.q_norm, self.k_norm = (Norm(size, shape.epsilon) for _ in range(2))


class FeedForward(nn.Module):
    """The weights of a feed-forward block with SiLU."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.act_fn = nn.SiLU()
        self.gate_proj = _linear(shape.hidden, shape.inner)
        self.up_proj = _linear(shape.hidden, shape.inner)
        self.down_proj = _linear(shape.inner, shape.hidden)


class DenseLayer(nn.Module):
    """The weights of one layer."""

    def __init__(self, shape: Shape, index: int) -> None:
        super().__init__()
        self.self_attn, self.mlp = Attention(shape, index), FeedForward(shape)
        self.input_layernorm = Norm(shape.hidden, shape.epsilon)
        self.post_attention_layernorm = Norm(shape.hidden, shape.epsilon)


class Rotary:
    """The angles of unscaled rotary position embeddings."""

    def __init__(self, shape: Shape, device: torch.device) -> None:
        exponents = torch.arange(0, shape.head_dim, 2, dtype=torch.float) / shape.head_dim
        self._frequencies = (1.0 / shape.theta**exponents).to(device)

    def __call__(self, states: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosines and sines [B, N, D] for positions [B, N], in the states' dtype."""
        angles = positions[..., None].float() * self._frequencies
        both = torch.cat((angles, angles), dim=-1)
        return both.cos().to(states.dtype), both.sin().to(states.dtype)


class DenseBody(nn.Module):
    """The weights of a decoder without its head."""

    rotary_emb: Rotary

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        weight = torch.empty(shape.vocabulary, shape.hidden, device="meta")
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.hidden, _weight=weight)
        self.layers = nn.ModuleList(DenseLayer(shape, index) for index in range(shape.layers))
        self.norm = Norm(shape.hidden, shape.epsilon)


class DenseModel(nn.Module):
    """The weights of a decoder under transformers' names, made without memory for them."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.model = DenseBody(shape)
        self.lm_head = _linear(shape.hidden, shape.vocabulary)


@dataclass(frozen=True, slots=True)
class Dense:
    """A decoder whose modules are loaded one by one, and the weights that they are loaded from."""

    model: DenseModel
    weights: StoredWeights
    is_tied: bool

    def head(self) -> nn.Linear:
        """Return the head with its weights, which are the embedding's if the two are tied; then the
        embedding has its weights too.
        """
        body, head = self.model.model, self.model.lm_head
        self.weights.fill(body.embed_tokens, "model.embed_tokens")
        if self.is_tied:
            head.weight = body.embed_tokens.weight
        else:
            self.weights.fill(head, "lm_head")
        return head

    def body(self) -> DenseBody:
        """Return the body with the weights of all but its layers; the embedding has its own from
        `head`.
        """
        body = self.model.model
        self.weights.fill(body.norm, "model.norm")
        return body

    def layer(self, layer: DenseLayer) -> DenseLayer:
        """Return one of the model's layers with its weights."""
        self.weights.fill(layer, f"model.layers.{layer.self_attn.layer_idx}")
        return layer


def load_dense(checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype) -> Dense | None:
    """Return the checkpoint's model, still without its weights; None where these are not exactly
    those of a dense decoder: what is wrong with them is then transformers' to say.

    Raises CheckpointError for files that cannot be right.
    """
    shape, folder = Shape.of(checkpoint), checkpoint.folder
    if shape is None:
        return None
    stored = stored_weights(folder)
    names = {name: _renamed(name, checkpoint.family.key_mapping) for name in stored}
    found = {names[name]: weight.shape for name, weight in stored.items()}
    if shape.is_tied and HEAD not in found and EMBEDDING in found:
        found[HEAD] = found[EMBEDDING]
    elif shape.is_tied or len(found) < len(names):
        return None
    if shape.layers > len(found) or not all(each.dtype in DTYPES for each in stored.values()):
        return None
    model = DenseModel(shape)
    if found != {name: tuple(weight.shape) for name, weight in model.named_parameters()}:
        return None
    model.model.rotary_emb = Rotary(shape, device)
    places = {names[name]: (weight.path, name) for name, weight in stored.items()}
    return Dense(model, StoredWeights(folder, places, device, dtype), shape.is_tied)


def _renamed(name: str, mapping: Mapping[str, str]) -> str:
    """Return the name of a checkpoint's weight in the model."""
    for pattern, replacement in mapping.items():
        if re.search(pattern, name):
            return re.sub(pattern, replacement, name, count=1)
    return name
