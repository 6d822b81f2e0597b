"""An independent Dream in plain torch, and Dream's published sampler written naively. Only tests
use it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests import reference_backbone
from tests.reference_backbone import Reference, Shape, common_config, shape_of

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


SHAPE = Shape(width=64, heads=4, kv_heads=2, hidden=96, theta=1e6)


def default_config(**changes: object) -> dict[str, Any]:
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
        "sliding_window": None,
        "use_sliding_window": False,
        "bos_token_id": PAD,
        "eos_token_id": PAD,
        "pad_token_id": PAD,
        "mask_token_id": MASK,
    }
    return common_config(SHAPE, **config | changes)


def write_checkpoint(folder: Path, gain: float = 1.6, **changes: object) -> Path:
    """Write random weights under Dream's names, its config.json with these changes, and a tokenizer
    in Dream's files: vocabulary, merges, added tokens.
    """
    config = default_config(**changes)
    shape = shape_of(config, has_bias=True, gain=gain)
    return reference_backbone.write_checkpoint(folder, shape, config, write_tokenizer)


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


class ReferenceDream(Reference):
    """Dream's computation: Qwen2's, shifted so that row i is about token i."""

    def __init__(self, folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        super().__init__(folder, shape_of(config, has_bias=True, is_shifted=True))


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
