"""ModernBERT in plain torch, and a random checkpoint with its official fields and names. Only tests
use it.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import gelu

from tests.reference_backbone import attended, rms_norm, rotated, stored_weights, write_files
from tests.tiny_format import tokenizer

CONFIG = {
    "architectures": ["ModernBertForMaskedLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 61,
    "classifier_activation": "gelu",
    "classifier_bias": False,
    "cls_token_id": 61,
    "decoder_bias": True,
    "embedding_dropout": 0.0,
    "eos_token_id": 62,
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0,
    "hidden_activation": "gelu",
    "hidden_size": 48,
    "intermediate_size": 40,
    "local_attention": 16,
    "local_rope_theta": 10000.0,
    "max_position_embeddings": 96,
    "mlp_bias": False,
    "mlp_dropout": 0.0,
    "model_type": "modernbert",
    "norm_bias": False,
    "norm_eps": 1e-5,
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "pad_token_id": 63,
    "sep_token_id": 62,
    "tie_word_embeddings": True,
    "vocab_size": 70,
}
TOKENS = {60: "[UNK]", 61: "[CLS]", 62: "[SEP]", 63: "[PAD]", 64: "[MASK]", 65: "[/Answer]"}
MASK = 64


def write_checkpoint(folder: Path, **changes: object) -> Path:
    """Write random weights under ModernBERT's names, config.json and a tokenizer."""
    generator, d, hidden, rows = torch.Generator().manual_seed(0), 48, 40, 70

    def matrix(out: int, into: int) -> Tensor:
        return torch.randn(out, into, generator=generator) / math.sqrt(into)

    def scale() -> Tensor:
        return 1 + 0.2 * torch.randn(d, generator=generator)

    weights = {
        "model.embeddings.tok_embeddings.weight": matrix(rows, d),
        "model.embeddings.norm.weight": scale(),
        "model.final_norm.weight": scale(),
        "head.dense.weight": matrix(d, d),
        "head.norm.weight": scale(),
        "decoder.bias": torch.randn(rows, generator=generator),
    }
    for layer in range(4):
        prefix = f"model.layers.{layer}."
        weights |= {
            f"{prefix}attn.Wqkv.weight": matrix(3 * d, d),
            f"{prefix}attn.Wo.weight": matrix(d, d),
            f"{prefix}mlp.Wi.weight": matrix(2 * hidden, d),
            f"{prefix}mlp.Wo.weight": matrix(d, hidden),
            f"{prefix}mlp_norm.weight": scale(),
        }
        if layer > 0:
            weights[f"{prefix}attn_norm.weight"] = scale()
    write_files(folder, weights, {**CONFIG, **changes})
    tokenizer(folder, rows, TOKENS, "[MASK]")
    return folder


class ReferenceModernBert:
    """ModernBERT written out, in float64: one text at a time."""

    def __init__(self, folder: Path) -> None:
        self.weights = stored_weights(folder)

    def logprobs(self, ids: list[int]) -> Tensor:
        """Return the log-probabilities [N, V]."""
        w = self.weights
        embed = w["model.embeddings.tok_embeddings.weight"]
        x = _norm(embed[torch.tensor(ids)], w["model.embeddings.norm.weight"])
        for layer in range(4):
            prefix = f"model.layers.{layer}."
            own = x if layer == 0 else _norm(x, w[f"{prefix}attn_norm.weight"])
            x = x + self._attention(own, prefix, is_global=layer % 3 == 0)
            wide = _norm(x, w[f"{prefix}mlp_norm.weight"]) @ w[f"{prefix}mlp.Wi.weight"].T
            left, gate = wide[:, :40], wide[:, 40:]
            x = x + (gelu(left) * gate) @ w[f"{prefix}mlp.Wo.weight"].T
        x = gelu(_norm(x, w["model.final_norm.weight"]) @ w["head.dense.weight"].T)
        logits = _norm(x, w["head.norm.weight"]) @ embed.T + w["decoder.bias"]
        return torch.log_softmax(logits, dim=-1)

    def _attention(self, x: Tensor, prefix: str, is_global: bool) -> Tensor:
        q, k, v = (x @ self.weights[f"{prefix}attn.Wqkv.weight"].T).chunk(3, dim=-1)
        theta, mixed, places = (160000.0 if is_global else 10000.0), [], torch.arange(len(x))
        sees = (places[:, None] - places).abs() <= (len(x) if is_global else 8)
        for head in range(4):
            own = slice(12 * head, 12 * head + 12)
            turned = (rotated(states[:, own], places, theta) for states in (q, k))
            mixed.append(attended(*turned, v[:, own], sees))
        return torch.cat(mixed, -1) @ self.weights[f"{prefix}attn.Wo.weight"].T


def _norm(x: Tensor, scale: Tensor) -> Tensor:
    return rms_norm(x - x.mean(-1, keepdim=True), scale, 1e-5)
