"""Transformer decoders in plain torch, with whatever differs between the families as an option, and
random checkpoints under the official names. Only tests use it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import silu

Weights = dict[str, Tensor]

LLAMA_NAMES = {
    "embed": "model.embed_tokens",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
    "bias": "mlp.gate.e_score_correction_bias",
}
"""Transformers' names of a decoder's weights, those of a layer without their prefix."""

LLADA2_NAMES = {
    "embed": "model.word_embeddings",
    "qkv": "attention.query_key_value",
    "o": "attention.dense",
    "q_norm": "attention.query_layernorm",
    "k_norm": "attention.key_layernorm",
    "bias": "mlp.gate.expert_bias",
}


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a decoder computes.

    block: the length of its blocks; None if it attends to the whole text. has_bias: of queries,
    keys and values. is_normed: queries and keys, head by head. rotary: the dimensions of a head
    that are rotated; None for all. router: None without experts, else how they are weighted.
    dense: the first layers that have no experts.
    """

    vocab: int = 70
    width: int = 48
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 12
    hidden: int = 64
    theta: float = 10000.0
    eps: float = 1e-6
    block: int | None = None
    has_bias: bool = False
    is_normed: bool = False
    is_tied: bool = False
    is_shifted: bool = False
    rotary: int | None = None
    router: str | None = None
    experts: int = 8
    per_token: int = 2
    groups: int = 1
    chosen_groups: int = 1
    scaling: float = 1.0
    expert_hidden: int = 20
    shared: int = 0
    dense: int = 0
    names: Mapping[str, str] = None  # type: ignore[assignment]

    def name(self, part: str) -> str:
        """Return the official name of a weight."""
        return (self.names or LLAMA_NAMES)[part]


def random_weights(shape: Shape, seed: int = 0) -> Weights:
    """Return random weights of that shape under their official names."""
    generator = torch.Generator().manual_seed(seed)

    def random(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=generator)

    def matrix(out: int, into: int) -> Tensor:
        return random(out, into) / math.sqrt(into)

    weights = {
        f"{shape.name('embed')}.weight": random(shape.vocab, shape.width) / math.sqrt(shape.width),
        "model.norm.weight": 1 + 0.2 * random(shape.width),
    }
    if not shape.is_tied:
        weights["lm_head.weight"] = matrix(shape.vocab, shape.width)
    for layer in range(shape.layers):
        prefix = f"model.layers.{layer}."
        parts = _attention_weights(shape, matrix, random) | _mlp_weights(
            shape, layer, matrix, random
        )
        parts |= {
            f"{name}_layernorm.weight": 1 + 0.2 * random(shape.width)
            for name in ("input", "post_attention")
        }
        weights |= {prefix + name: weight.contiguous() for name, weight in parts.items()}
    return weights


def _attention_weights(
    shape: Shape, matrix: Callable[[int, int], Tensor], random: Callable[..., Tensor]
) -> Weights:
    rows = {"q": shape.heads * shape.head_dim, "k": shape.kv_heads * shape.head_dim}
    rows["v"] = rows["k"]
    parts: Weights = {f"{shape.name('o')}.weight": matrix(shape.width, rows["q"])}
    projections = {part: matrix(size, shape.width) for part, size in rows.items()}
    if "qkv" in (shape.names or LLAMA_NAMES):
        parts[f"{shape.name('qkv')}.weight"] = torch.cat(list(projections.values()))
    else:
        parts |= {f"{shape.name(part)}.weight": each for part, each in projections.items()}
    if shape.has_bias:
        parts |= {f"{shape.name(part)}.bias": random(size) / 2 for part, size in rows.items()}
    if shape.is_normed:
        parts |= {f"{shape.name(part)}.weight": 1 + 0.3 * random(shape.head_dim)
                  for part in ("q_norm", "k_norm")}  # fmt: skip
    return parts


def _mlp_weights(
    shape: Shape, layer: int, matrix: Callable[[int, int], Tensor], random: Callable[..., Tensor]
) -> Weights:
    def mlp(prefix: str, hidden: int) -> Weights:
        sizes = {"gate": (hidden, shape.width), "up": (hidden, shape.width)}
        sizes["down"] = (shape.width, hidden)
        return {f"{prefix}.{name}_proj.weight": matrix(*size) for name, size in sizes.items()}

    if shape.router is None or layer < shape.dense:
        return mlp("mlp", shape.hidden)
    parts = {"mlp.gate.weight": matrix(shape.experts, shape.width) * 2}
    if shape.router == "sigmoid":
        parts[shape.name("bias")] = random(shape.experts) / 4
    for expert in range(shape.experts):
        parts |= mlp(f"mlp.experts.{expert}", shape.expert_hidden)
    if shape.shared:
        parts |= mlp("mlp.shared_experts", shape.expert_hidden * shape.shared)
    return parts


def write_checkpoint(
    folder: Path, shape: Shape, config: dict[str, object], write_tokenizer: Callable[[Path], None]
) -> Path:
    """Write random weights of that shape, the config.json and a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(random_weights(shape), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder)
    return folder


class Reference:
    """A decoder written out, in float64: one text at a time, one head and one token after the
    other where it matters.
    """

    def __init__(self, folder: Path, shape: Shape) -> None:
        files = sorted(folder.glob("*.safetensors"))
        self.weights = {name: w.double() for file in files for name, w in load_file(file).items()}
        self.shape = shape

    def logprobs(self, ids: list[int]) -> Tensor:
        """Return the log-probabilities [N, V]; row i is about token i."""
        logits = self.logits(ids)
        if self.shape.is_shifted:
            logits = torch.cat([logits[:1], logits[:-1]])
        return torch.log_softmax(logits, dim=-1)

    def logits(self, ids: list[int]) -> Tensor:
        """Return the logits of the model's own rows, [N, V]."""
        w, shape = self.weights, self.shape
        embed = w[f"{shape.name('embed')}.weight"]
        x = embed[torch.tensor(ids)]
        for layer in range(shape.layers):
            prefix = f"model.layers.{layer}."
            block = {name.removeprefix(prefix): tensor for name, tensor in w.items()
                     if name.startswith(prefix)}  # fmt: skip
            x = x + self._attention(self._norm(x, block["input_layernorm.weight"]), block)
            h = self._norm(x, block["post_attention_layernorm.weight"])
            is_dense = shape.router is None or layer < shape.dense
            x = x + (_mlp(h, block, "mlp") if is_dense else self._experts(h, block))
        head = embed if shape.is_tied else w["lm_head.weight"]
        return self._norm(x, w["model.norm.weight"]) @ head.T

    def _norm(self, x: Tensor, scale: Tensor) -> Tensor:
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + self.shape.eps) * scale

    def _visible(self, length: int) -> Tensor:
        """Return which position (row) sees which (column), bool [N, N]."""
        size = self.shape.block
        return torch.tensor([[size is None or key // size <= query // size
                              for key in range(length)] for query in range(length)])  # fmt: skip

    def _projected(self, x: Tensor, block: Weights) -> list[Tensor]:
        shape = self.shape
        if "qkv" in (shape.names or LLAMA_NAMES):
            fused, rows = block[f"{shape.name('qkv')}.weight"], shape.head_dim
            q, kv = shape.heads * rows, shape.kv_heads * rows
            return [x @ part.T for part in (fused[:q], fused[q : q + kv], fused[q + kv :])]
        names = [shape.name(part) for part in ("q", "k", "v")]
        nothing = torch.zeros(1)
        return [
            x @ block[f"{name}.weight"].T + block.get(f"{name}.bias", nothing) for name in names
        ]

    def _attention(self, x: Tensor, block: Weights) -> Tensor:
        shape, size, mixed = self.shape, self.shape.head_dim, []
        q, k, v = self._projected(x, block)
        hidden = ~self._visible(len(x))
        for head in range(shape.heads):
            other = head * shape.kv_heads // shape.heads
            query, key = q[:, head * size :][:, :size], k[:, other * size :][:, :size]
            if shape.is_normed:
                query = self._norm(query, block[f"{shape.name('q_norm')}.weight"])
                key = self._norm(key, block[f"{shape.name('k_norm')}.weight"])
            scores = self._rotate(query) @ self._rotate(key).T / math.sqrt(size)
            seen = torch.softmax(scores.masked_fill(hidden, -math.inf), dim=-1)
            mixed.append(seen @ v[:, other * size :][:, :size])
        return torch.cat(mixed, dim=-1) @ block[f"{shape.name('o')}.weight"].T

    def _rotate(self, x: Tensor) -> Tensor:
        size = self.shape.rotary or x.shape[-1]
        half = size // 2
        angles = torch.outer(
            torch.arange(len(x)).double(), self.shape.theta ** (-torch.arange(half).double() / half)
        )
        cos, sin, left, right = angles.cos(), angles.sin(), x[:, :half], x[:, half:size]
        return torch.cat([left * cos - right * sin, right * cos + left * sin, x[:, size:]], -1)

    def _experts(self, x: Tensor, block: Weights) -> Tensor:
        rows = []
        for row in x:
            weights = self._routed(row, block)
            one = row[None]
            mixed = sum(w * _mlp(one, block, f"mlp.experts.{i}") for i, w in weights.items())
            if self.shape.shared:
                mixed = mixed + _mlp(one, block, "mlp.shared_experts")
            rows.append(mixed)
        return torch.cat(rows)

    def _routed(self, row: Tensor, block: Weights) -> dict[int, float]:
        """Return the experts of a token and their weights."""
        shape, scores = self.shape, block["mlp.gate.weight"] @ row
        if shape.router == "sigmoid":
            return self._grouped(torch.sigmoid(scores), block[shape.name("bias")])
        chances = torch.softmax(scores, -1)
        best = sorted(range(shape.experts), key=lambda i: -float(chances[i]))[: shape.per_token]
        total = sum(float(chances[i]) for i in best) if shape.router == "normed softmax" else 1.0
        return {i: float(chances[i]) / total for i in best}

    def _grouped(self, chances: Tensor, bias: Tensor) -> dict[int, float]:
        """Return the best experts, with their bias, of the groups whose two best are best."""
        shape, size = self.shape, self.shape.experts // self.shape.groups
        biased = (chances + bias).tolist()
        groups = [list(range(g * size, (g + 1) * size)) for g in range(shape.groups)]
        groups.sort(key=lambda group: -sum(sorted(biased[i] for i in group)[-2:]))
        among = [i for group in groups[: shape.chosen_groups] for i in group]
        best = sorted(among, key=lambda i: -biased[i])[: shape.per_token]
        total = sum(float(chances[i]) for i in best) if shape.per_token > 1 else 1.0
        return {i: float(chances[i]) / total * shape.scaling for i in best}


def _mlp(x: Tensor, block: Weights, prefix: str) -> Tensor:
    gate, up, down = (block[f"{prefix}.{name}_proj.weight"] for name in ("gate", "up", "down"))
    return (silu(x @ gate.T) * (x @ up.T)) @ down.T


def common_config(shape: Shape, **fields: object) -> dict[str, Any]:
    """Return the fields of config.json that all formats share, then those given."""
    return {
        "hidden_act": "silu",
        "hidden_size": shape.width,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "intermediate_size": shape.hidden,
        "vocab_size": shape.vocab,
        "max_position_embeddings": 96,
        "rms_norm_eps": shape.eps,
        "rope_theta": shape.theta,
        "rope_scaling": None,
        "tie_word_embeddings": shape.is_tied,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "use_cache": False,
        **fields,
    }
