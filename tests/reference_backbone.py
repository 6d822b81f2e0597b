"""Transformer decoders in plain torch, with whatever differs between the families as an option, and
random checkpoints under the official names. Only tests use it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import silu

Weights = dict[str, Tensor]

LLAMA_NAMES = {
    "embed": "model.embed_tokens",
    "norm": "model.norm",
    "head": "lm_head",
    "layers": "model.layers",
    "before_attention": "input_layernorm",
    "before_mlp": "post_attention_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
    "bias": "mlp.gate.e_score_correction_bias",
}
"""Transformers' names of a decoder's weights, those of a layer without their prefix."""

LLADA2_NAMES = {
    **LLAMA_NAMES,
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
    dense: the first layers that have no experts. gain: how large the random weights are.
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
    gain: float = 1.0
    names: Mapping[str, str] = field(default_factory=LLAMA_NAMES.copy)


def random_weights(shape: Shape, seed: int = 0) -> Weights:
    """Return random weights of that shape under their official names."""
    generator = torch.Generator().manual_seed(seed)

    def random(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=generator)

    def matrix(out: int, into: int) -> Tensor:
        return random(out, into) * shape.gain / math.sqrt(into)

    weights = {
        f"{shape.names['embed']}.weight": random(shape.vocab, shape.width) / math.sqrt(shape.width),
        f"{shape.names['norm']}.weight": 1 + 0.2 * random(shape.width),
    }
    if not shape.is_tied:
        weights[f"{shape.names['head']}.weight"] = matrix(shape.vocab, shape.width)
    for layer in range(shape.layers):
        prefix = f"{shape.names['layers']}.{layer}."
        parts = _attention_weights(shape, matrix, random) | _mlp_weights(
            shape, layer, matrix, random
        )
        parts |= {
            f"{shape.names[part]}.weight": 1 + 0.2 * random(shape.width)
            for part in ("before_attention", "before_mlp")
        }
        weights |= {prefix + name: weight.contiguous() for name, weight in parts.items()}
    return weights


def _attention_weights(
    shape: Shape, matrix: Callable[[int, int], Tensor], random: Callable[..., Tensor]
) -> Weights:
    rows = {"q": shape.heads * shape.head_dim, "k": shape.kv_heads * shape.head_dim}
    rows["v"] = rows["k"]
    parts: Weights = {f"{shape.names['o']}.weight": matrix(shape.width, rows["q"])}
    projections = {part: matrix(size, shape.width) for part, size in rows.items()}
    if "qkv" in shape.names:
        parts[f"{shape.names['qkv']}.weight"] = torch.cat(list(projections.values()))
    else:
        parts |= {f"{shape.names[part]}.weight": each for part, each in projections.items()}
    if shape.has_bias:
        parts |= {f"{shape.names[part]}.bias": random(size) / 2 for part, size in rows.items()}
    if shape.is_normed:
        parts |= {f"{shape.names[part]}.weight": 1 + 0.3 * random(shape.head_dim)
                  for part in ("q_norm", "k_norm")}  # fmt: skip
    return parts


def _mlp_weights(
    shape: Shape, layer: int, matrix: Callable[[int, int], Tensor], random: Callable[..., Tensor]
) -> Weights:
    def mlp(hidden: int, *names: str) -> Weights:
        sizes = ((hidden, shape.width), (hidden, shape.width), (shape.width, hidden))
        return {f"{name}.weight": matrix(*size) for name, size in zip(names, sizes, strict=True)}

    if shape.router is None or layer < shape.dense:
        return mlp(shape.hidden, *(shape.names[part] for part in ("gate", "up", "down")))
    parts = {"mlp.gate.weight": matrix(shape.experts, shape.width) * 2}
    if shape.router == "sigmoid":
        parts[shape.names["bias"]] = random(shape.experts) / 4
    for expert in range(shape.experts):
        parts |= mlp(shape.expert_hidden, *expert_names(f"experts.{expert}"))
    if shape.shared:
        parts |= mlp(shape.expert_hidden * shape.shared, *expert_names("shared_experts"))
    return parts


def expert_names(expert: str) -> list[str]:
    return [f"mlp.{expert}.{part}_proj" for part in ("gate", "up", "down")]


def write_files(folder: Path, weights: Weights, config: Mapping[str, object]) -> Path:
    """Write the weights into one file, and config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def write_checkpoint(
    folder: Path, shape: Shape, config: dict[str, Any], write_tokenizer: Callable[[Path], None]
) -> Path:
    """Write random weights of that shape, the config.json and a tokenizer."""
    write_files(folder, random_weights(shape), config)
    write_tokenizer(folder)
    return folder


def stored_weights(folder: Path, dtype: torch.dtype = torch.float64) -> Weights:
    """Return all weights of a checkpoint."""
    files = sorted(folder.glob("*.safetensors"))
    return {name: w.to(dtype) for file in files for name, w in load_file(file).items()}


@contextmanager
def edited(folder: Path) -> Iterator[Weights]:
    """Yield the weights of a checkpoint in one file, and write what has become of them."""
    weights = load_file(folder / "model.safetensors")
    yield weights
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def below(weights: Weights, prefix: str) -> Weights:
    """Return the weights under a prefix, without it."""
    return {name.removeprefix(prefix): w for name, w in weights.items() if name.startswith(prefix)}


def block_causal(num_tokens: int, length: int | None) -> Tensor:
    """Return bool [N, N]: which token (row) sees which; all see all without a length."""
    blocks = [0 if length is None else place // length for place in range(num_tokens)]
    return torch.tensor([[key <= query for key in blocks] for query in blocks])


def rms_norm(x: Tensor, scale: Tensor, eps: float) -> Tensor:
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * scale


def rotated(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Return the states [N, D] of a head turned by their positions [N]."""
    half = x.shape[-1] // 2
    frequencies = theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.outer(positions.double(), frequencies)
    cos, sin, left, right = angles.cos().to(x), angles.sin().to(x), x[:, :half], x[:, half:]
    return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)


def attended(query: Tensor, key: Tensor, value: Tensor, sees: Tensor | None = None) -> Tensor:
    """Return what one head [N, D] mixes; `sees` as block_causal returns it."""
    scores = query @ key.T / math.sqrt(query.shape[-1])
    scores = scores if sees is None else scores.masked_fill(~sees, -math.inf)
    return torch.softmax(scores, dim=-1) @ value


class Reference:
    """A decoder written out, in float64: one text at a time, one head and one token after the
    other where it matters.
    """

    def __init__(self, folder: Path, shape: Shape, dtype: torch.dtype = torch.float64) -> None:
        self.weights = stored_weights(folder, dtype)
        self.shape = shape

    def logprobs(self, ids: list[int]) -> Tensor:
        """Return the log-probabilities [N, V]; row i is about token i."""
        return torch.log_softmax(self.logits(ids), dim=-1)

    def logits(self, ids: list[int], sees: Tensor | None = None) -> Tensor:
        """Return the logits [N, V]; row i is about token i. sees: as for rows."""
        rows = self.rows(ids, sees)
        return torch.cat([rows[:1], rows[:-1]]) if self.shape.is_shifted else rows

    def rows(
        self, ids: list[int], sees: Tensor | None = None, positions: Sequence[int] | None = None
    ) -> Tensor:
        """Return the logits of the model's own rows, [N, V].

        sees: bool [N, N], which row sees which column; None for the shape's blocks. positions:
        where the tokens stand; None for one after the other.
        """
        w, shape = self.weights, self.shape
        if sees is None and shape.block is not None:
            sees = block_causal(len(ids), shape.block)
        places = torch.tensor(range(len(ids)) if positions is None else positions)
        embed = w[f"{shape.names['embed']}.weight"]
        x = embed[torch.tensor(ids)]
        for layer in range(shape.layers):
            block = below(w, f"{shape.names['layers']}.{layer}.")
            states = self._norm(x, block[f"{shape.names['before_attention']}.weight"])
            x = x + self._attention(states, block, sees, places, layer)
            h = self._norm(x, block[f"{shape.names['before_mlp']}.weight"])
            is_dense = shape.router is None or layer < shape.dense
            names = [shape.names[part] for part in ("gate", "up", "down")]
            x = x + (_mlp(h, block, names) if is_dense else self._experts(h, block))
        head = embed if shape.is_tied else w[f"{shape.names['head']}.weight"]
        return self._norm(x, w[f"{shape.names['norm']}.weight"]) @ head.T

    def _keys(
        self, layer: int, key: Tensor, value: Tensor, places: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the keys and values that a layer attends to, and where they stand."""
        return key, value, places

    def _norm(self, x: Tensor, scale: Tensor) -> Tensor:
        return rms_norm(x, scale, self.shape.eps)

    def _projected(self, x: Tensor, block: Weights) -> list[Tensor]:
        shape = self.shape
        if "qkv" in shape.names:
            fused, rows = block[f"{shape.names['qkv']}.weight"], shape.head_dim
            q, kv = shape.heads * rows, shape.kv_heads * rows
            return [x @ part.T for part in (fused[:q], fused[q : q + kv], fused[q + kv :])]
        names = [shape.names[part] for part in ("q", "k", "v")]
        nothing = torch.zeros(1).to(x)
        return [
            x @ block[f"{name}.weight"].T + block.get(f"{name}.bias", nothing) for name in names
        ]

    def _attention(
        self, x: Tensor, block: Weights, sees: Tensor | None, places: Tensor, layer: int
    ) -> Tensor:
        shape, size, mixed = self.shape, self.shape.head_dim, []
        q, k, v = self._projected(x, block)
        k, v, key_places = self._keys(layer, k, v, places)
        for head in range(shape.heads):
            other = head * shape.kv_heads // shape.heads
            query, key = q[:, head * size :][:, :size], k[:, other * size :][:, :size]
            if shape.is_normed:
                query = self._norm(query, block[f"{shape.names['q_norm']}.weight"])
                key = self._norm(key, block[f"{shape.names['k_norm']}.weight"])
            turned = (self._rotate(query, places), self._rotate(key, key_places))
            mixed.append(attended(*turned, v[:, other * size :][:, :size], sees))
        return torch.cat(mixed, dim=-1) @ block[f"{shape.names['o']}.weight"].T

    def _rotate(self, x: Tensor, places: Tensor) -> Tensor:
        size = self.shape.rotary or x.shape[-1]
        return torch.cat([rotated(x[:, :size], places, self.shape.theta), x[:, size:]], dim=-1)

    def _experts(self, x: Tensor, block: Weights) -> Tensor:
        rows = []
        for row in x:
            weights = self._routed(row, block)
            one = row[None]
            parts = [
                weight * _mlp(one, block, expert_names(f"experts.{i}"))
                for i, weight in weights.items()
            ]
            if self.shape.shared:
                parts.append(_mlp(one, block, expert_names("shared_experts")))
            rows.append(torch.stack(parts).sum(0))
        return torch.cat(rows)

    def _routed(self, row: Tensor, block: Weights) -> dict[int, float]:
        """Return the experts of a token and their weights."""
        shape, scores = self.shape, block["mlp.gate.weight"] @ row
        if shape.router == "sigmoid":
            return self._grouped(torch.sigmoid(scores), block[shape.names["bias"]])
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


def _mlp(x: Tensor, block: Weights, names: Sequence[str]) -> Tensor:
    gate, up, down = (block[f"{name}.weight"] for name in names)
    return (silu(x @ gate.T) * (x @ up.T)) @ down.T


def shape_of(config: Mapping[str, Any], **more: Any) -> Shape:
    """Return the shape that a config.json with Qwen's fields tells."""
    heads, width = config["num_attention_heads"], config["hidden_size"]
    return Shape(
        vocab=config["vocab_size"], width=width, layers=config["num_hidden_layers"], heads=heads,
        kv_heads=config["num_key_value_heads"], head_dim=config.get("head_dim", width // heads),
        hidden=config["intermediate_size"], theta=config.get("rope_theta", 1e6),
        eps=config["rms_norm_eps"], is_tied=config["tie_word_embeddings"], **more,
    )  # fmt: skip


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
