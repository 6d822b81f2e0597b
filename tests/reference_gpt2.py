"""GPT-2 with full attention in plain torch, and a random checkpoint of it. Only tests use it."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm

from tests.reference_backbone import attended, stored_weights, write_files
from tests.tiny_format import tokenizer

CONFIG = {
    "activation_function": "gelu_new",
    "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.1,
    "bos_token_id": 2,
    "embd_pdrop": 0.1,
    "eos_token_id": 2,
    "layer_norm_epsilon": 1e-5,
    "model_type": "gpt2",
    "n_ctx": 96,
    "n_embd": 48,
    "n_head": 4,
    "n_layer": 2,
    "n_positions": 96,
    "resid_pdrop": 0.1,
    "vocab_size": 70,
}


def write_checkpoint(folder: Path) -> Path:
    """Write random weights under GPT-2's names, config.json and a tokenizer."""
    generator, d = torch.Generator().manual_seed(0), 48

    def random(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=generator) / math.sqrt(d)

    weights = {"transformer.wte.weight": random(70, d), "transformer.wpe.weight": random(96, d)}
    names = ["transformer.ln_f"]
    for layer in range(2):
        prefix = f"transformer.h.{layer}."
        shapes = {"attn.c_attn": (d, 3 * d), "attn.c_proj": (d, d)}
        shapes |= {"mlp.c_fc": (d, 4 * d), "mlp.c_proj": (4 * d, d)}
        for name, shape in shapes.items():
            weights |= {f"{prefix}{name}.weight": random(*shape)}
            weights |= {f"{prefix}{name}.bias": random(shape[1])}
        names += [f"{prefix}ln_1", f"{prefix}ln_2"]
    for name in names:
        weights |= {f"{name}.weight": 1 + random(d), f"{name}.bias": random(d)}
    write_files(folder, weights, CONFIG)
    tokenizer(folder, 70, {2: "<|endoftext|>"}, None)
    return folder


class ReferenceGpt2:
    """GPT-2 written out, in float64, without a causal mask; row i is about token i."""

    def __init__(self, folder: Path) -> None:
        self.weights = stored_weights(folder)

    def logprobs(self, ids: list[int]) -> Tensor:
        """Return the log-probabilities [N, V]; row i is that of the model's row i - 1."""
        embed = self.weights["transformer.wte.weight"]
        x = embed[torch.tensor(ids)] + self.weights["transformer.wpe.weight"][: len(ids)]
        for layer in range(2):
            prefix = f"transformer.h.{layer}."
            x = x + self._attention(self._norm(x, f"{prefix}ln_1"), prefix)
            wide = self._linear(self._norm(x, f"{prefix}ln_2"), f"{prefix}mlp.c_fc")
            x = x + self._linear(gelu(wide, approximate="tanh"), f"{prefix}mlp.c_proj")
        rows = torch.log_softmax(self._norm(x, "transformer.ln_f") @ embed.T, dim=-1)
        return torch.cat([rows[:1], rows[:-1]])

    def _norm(self, x: Tensor, name: str) -> Tensor:
        scale, shift = (self.weights[f"{name}.{part}"] for part in ("weight", "bias"))
        return layer_norm(x, x.shape[-1:], scale, shift, 1e-5)

    def _linear(self, x: Tensor, name: str) -> Tensor:
        return x @ self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def _attention(self, x: Tensor, prefix: str) -> Tensor:
        q, k, v = self._linear(x, f"{prefix}attn.c_attn").chunk(3, dim=-1)
        heads = [slice(12 * head, 12 * head + 12) for head in range(4)]
        mixed = [attended(q[:, own], k[:, own], v[:, own]) for own in heads]
        return self._linear(torch.cat(mixed, -1), f"{prefix}attn.c_proj")
