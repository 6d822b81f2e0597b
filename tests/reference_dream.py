"""An independent Dream in plain torch, and Dream's published sampler written naively. Only tests
use it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional

Uniforms = Callable[[int, np.ndarray], np.ndarray]
"""Uniform numbers in [0, 1) for a denoising step and positions int64 [M], float64 [M]."""

LETTERS = "abcdefghijklmnopqrstuvwxyz"
PAD, IM_START, IM_END, START, MASK = 60, 61, 62, 63, 64
ADDED = {
    PAD: "<|endoftext|>",
    IM_START: "<|im_start|>",
    IM_END: "<|im_end|>",
    START: "<|beginoftext|>",
    MASK: "<|mask|>",
}


def default_config(**changes: object) -> dict[str, object]:
    """Return a config.json in Dream's format for a tiny model; it names remote code, which must not
    be run.
    """
    config: dict[str, object] = {
        "architectures": ["DreamModel"],
        "auto_map": {
            "AutoConfig": "configuration_dream.DreamConfig",
            "AutoModel": "modeling_dream.DreamModel",
        },
        "model_type": "Dream",
        "hidden_act": "silu",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 96,
        "vocab_size": 70,
        "max_position_embeddings": 96,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "rope_scaling": None,
        "sliding_window": None,
        "use_sliding_window": False,
        "tie_word_embeddings": False,
        "bos_token_id": PAD,
        "eos_token_id": PAD,
        "pad_token_id": PAD,
        "mask_token_id": MASK,
    }
    return config | changes


def write_checkpoint(
    folder: Path, config: dict[str, object], gain: float = 1.6, seed: int = 0
) -> Path:
    """Write random weights under Dream's names, and a tokenizer in Dream's files: vocabulary,
    merges, added tokens.
    """
    generator = torch.Generator().manual_seed(seed)
    d, hidden, rows = (
        int(str(config[key])) for key in ("hidden_size", "intermediate_size", "vocab_size")
    )
    kv = d // int(str(config["num_attention_heads"])) * int(str(config["num_key_value_heads"]))

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    weights = {
        "model.embed_tokens.weight": random(rows, d),
        "model.norm.weight": 1 + 0.2 * random(d),
        "lm_head.weight": random(rows, d) * gain / math.sqrt(d),
    }
    for layer in range(int(str(config["num_hidden_layers"]))):
        prefix = f"model.layers.{layer}"
        for name, out in (("q", d), ("k", kv), ("v", kv)):
            weights[f"{prefix}.self_attn.{name}_proj.weight"] = random(out, d) * gain / math.sqrt(d)
            weights[f"{prefix}.self_attn.{name}_proj.bias"] = 0.5 * random(out)
        weights[f"{prefix}.self_attn.o_proj.weight"] = random(d, d) * gain / math.sqrt(d)
        for name, shape in (("gate", (hidden, d)), ("up", (hidden, d)), ("down", (d, hidden))):
            weights[f"{prefix}.mlp.{name}_proj.weight"] = (
                random(*shape) * gain / math.sqrt(shape[1])
            )
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{prefix}.{name}.weight"] = 1 + 0.2 * random(d)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder)
    return folder


def write_tokenizer(folder: Path) -> None:
    """Write vocab.json, merges.txt and tokenizer_config.json as Dream publishes them, without a
    tokenizer.json.
    """
    pieces = [*LETTERS, "ab", "Ġ", "Ċ", *"0123456789", *LETTERS.upper()[: PAD - 39]]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\na b\n")
    settings = {
        "tokenizer_class": "DreamTokenizer",
        "auto_map": {"AutoTokenizer": ["tokenization_dream.DreamTokenizer", None]},
        "added_tokens_decoder": {
            str(index): {
                "content": name,
                "special": True,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
            }
            for index, name in ADDED.items()
        },
        "bos_token": "<|beginoftext|>",
        "eos_token": "<|endoftext|>",
        "pad_token": "<|endoftext|>",
        "mask_token": "<|mask|>",
        "unk_token": None,
        "chat_template": "{% for m in messages %}"
        "<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


class ReferenceDream:
    """Dream's computation written out: one sequence at a time, all logits, shifted so that row i is
    about token i.
    """

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float64) -> None:
        self.config = json.loads((folder / "config.json").read_text())
        self.weights = {
            name: w.to(dtype) for name, w in load_file(folder / "model.safetensors").items()
        }

    def logits(self, ids: list[int]) -> Tensor:
        """Return logits [N, V]; row i is that of the model's row i - 1, and row 0 its own."""
        logits = self.rows(ids)
        return torch.cat([logits[:1], logits[:-1]])

    def rows(self, ids: list[int]) -> Tensor:
        """Return the logits of the model's own rows, [N, V]."""
        w = self.weights
        x = w["model.embed_tokens.weight"][torch.tensor(ids)]
        for layer in range(self.config["num_hidden_layers"]):
            prefix = f"model.layers.{layer}."
            block = {
                name.removeprefix(prefix): tensor
                for name, tensor in w.items()
                if name.startswith(prefix)
            }
            x = x + self._attention(self._norm(x, block["input_layernorm.weight"]), block)
            h = self._norm(x, block["post_attention_layernorm.weight"])
            gate, up, down = (block[f"mlp.{name}_proj.weight"] for name in ("gate", "up", "down"))
            x = x + (functional.silu(h @ gate.T) * (h @ up.T)) @ down.T
        head = w.get("lm_head.weight", w["model.embed_tokens.weight"])
        return self._norm(x, w["model.norm.weight"]) @ head.T

    def _norm(self, x: Tensor, scale: Tensor) -> Tensor:
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + self.config["rms_norm_eps"]) * scale

    def _attention(self, x: Tensor, block: dict[str, Tensor]) -> Tensor:
        heads, kv_heads = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        head_dim = x.shape[-1] // heads
        q, k, v = (
            x @ block[f"self_attn.{name}_proj.weight"].T + block[f"self_attn.{name}_proj.bias"]
            for name in ("q", "k", "v")
        )
        mixed = []
        for head in range(heads):
            own = slice(head * head_dim, (head + 1) * head_dim)
            shared = slice(
                head * kv_heads // heads * head_dim, (head * kv_heads // heads + 1) * head_dim
            )
            scores = self._rotate(q[:, own]) @ self._rotate(k[:, shared]).T / math.sqrt(head_dim)
            mixed.append(torch.softmax(scores, dim=-1) @ v[:, shared])
        return torch.cat(mixed, dim=-1) @ block["self_attn.o_proj.weight"].T

    def _rotate(self, x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        frequencies = self.config["rope_theta"] ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = torch.arange(len(x), dtype=torch.float64)[:, None] * frequencies
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        left, right = x[:, :half], x[:, half:]
        return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)


def naive_sample(
    model: ReferenceDream,
    prompt: list[int],
    length: int,
    steps: int,
    alg: str,
    eps: float = 1e-3,
    temperature: float = 0.0,
    top_p: float = 1.0,
    uniforms: Uniforms | None = None,
) -> list[int]:
    """Return prompt + response as Dream's diffusion_generate writes it: float32 times, one
    sequence.

    alg: "maskgit_plus", "topk_margin" or "entropy". The mask itself is never written, which the
    original allows. Above temperature 0 a token is where the cumulative distribution passes the
    position's uniform number, of those that `uniforms` returns for a step and its masked positions;
    steps that commit nothing draw nothing.
    """
    x = torch.tensor(prompt + [MASK] * length)
    times = torch.linspace(1, eps, steps + 1)
    num_drawn = 0
    for i in range(steps):
        masked = x == MASK
        num_masked = masked.sum()
        count = (
            int(num_masked * (1 - times[i + 1] / times[i])) if i < steps - 1 else int(num_masked)
        )
        if count == 0:
            continue
        logits = model.logits(x.tolist())[masked]
        logits[:, MASK] = -math.inf
        positions = torch.nonzero(masked)[:, 0].numpy()
        drawn = None if uniforms is None else torch.from_numpy(uniforms(num_drawn, positions))
        confidence, tokens = sample_tokens(logits, alg, temperature, top_p, drawn)
        num_drawn += 1
        everywhere = torch.full(x.shape, -math.inf, dtype=torch.float64)
        everywhere[masked] = confidence.double()
        written = x.clone()
        written[masked] = tokens
        chosen = torch.sort(everywhere, descending=True, stable=True).indices[:count]
        x[chosen] = written[chosen]
    return [int(token) for token in x]


def sample_tokens(
    logits: Tensor, alg: str, temperature: float, top_p: float, uniforms: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return confidences and tokens as Dream's function of this name: both of the tempered,
    filtered distribution.
    """
    if temperature > 0:
        logits = logits / temperature
    if top_p < 1:
        ordered, order = torch.sort(logits, descending=True)
        is_removed = torch.cumsum(torch.softmax(ordered, dim=-1), dim=-1) > top_p
        is_removed[:, 1:] = is_removed[:, :-1].clone()
        is_removed[:, 0] = False
        mask = torch.zeros_like(is_removed).scatter_(-1, order, is_removed)
        logits = logits.masked_fill(mask, torch.finfo(logits.dtype).min)
    probabilities = torch.softmax(logits, dim=-1)
    confidence, tokens = probabilities.max(dim=-1)
    if temperature > 0 and uniforms is not None:
        tokens = (probabilities.cumsum(-1) <= uniforms[:, None]).sum(-1)
        confidence = probabilities.gather(-1, tokens[:, None])[:, 0]
    if alg == "topk_margin":
        first, second = probabilities.sort(dim=-1, descending=True).values[:, :2].unbind(-1)
        confidence = first - second
    elif alg == "entropy":
        confidence = (probabilities * torch.log(probabilities + 1e-10)).sum(-1)
    return confidence, tokens
