"""An independent LLaDA in plain torch, and the published decoding loop written naively. Only tests
use it.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from tests import reference_backbone
from tests.reference_backbone import LLAMA_NAMES, Reference, Shape, write_files
from tests.tiny_format import LETTERS, write_words

END_BY_NAME = 48
"""<|endoftext|> in the tokenizer, an end token whatever the configuration names."""


def default_config(**changes: object) -> dict[str, Any]:
    """Return a config.json in LLaDA's format for a tiny model."""
    config: dict[str, Any] = {
        "architectures": ["LLaDAModelLM"],
        "model_type": "llada",
        "block_type": "llama",
        "activation_type": "silu",
        "layer_norm_type": "rms",
        "d_model": 64,
        "n_layers": 2,
        "n_heads": 2,
        "n_kv_heads": 2,
        "mlp_hidden_size": 96,
        "vocab_size": 50,
        "embedding_size": 52,
        "max_sequence_length": 96,
        "rope": True,
        "rope_theta": 500000.0,
        "rms_norm_eps": 1e-5,
        "weight_tying": False,
        "include_bias": False,
        "include_qkv_bias": False,
        "alibi": False,
        "attention_layer_norm": False,
        "scale_logits": False,
        "input_emb_norm": False,
        "mask_token_id": 49,
        "eos_token_id": 48,
        "pad_token_id": 48,
    }
    return config | changes


NAMES = {
    **LLAMA_NAMES,
    "embed": "model.transformer.wte",
    "norm": "model.transformer.ln_f",
    "head": "model.transformer.ff_out",
    "layers": "model.transformer.blocks",
    "before_attention": "attn_norm",
    "before_mlp": "ff_norm",
    "o": "attn_out",
    "gate": "ff_proj",
    "up": "up_proj",
    "down": "ff_out",
    **{part: f"{part}_proj" for part in "qkv"},
}


def shape_of(config: dict[str, Any], gain: float = 1.0) -> Shape:
    heads, width = config["n_heads"], config["d_model"]
    return Shape(
        vocab=config["embedding_size"], width=width, layers=config["n_layers"], heads=heads,
        kv_heads=config.get("n_kv_heads") or heads, head_dim=width // heads,
        hidden=config["mlp_hidden_size"], theta=config["rope_theta"],
        eps=config["rms_norm_eps"], is_tied=config["weight_tying"], gain=gain, names=NAMES,
    )  # fmt: skip


def random_weights(config: dict[str, Any], gain: float = 1.6, seed: int = 0) -> dict[str, Tensor]:
    """Return weights under LLaDA's official names; a large gain makes every position look unlike
    the others.
    """
    weights = reference_backbone.random_weights(shape_of(config, gain), seed)
    if not config["weight_tying"]:
        weights["model.transformer.wte.weight"] *= 8
    return weights


def write_checkpoint(
    folder: Path, config: dict[str, Any], weights: dict[str, Tensor], shards: int = 1
) -> Path:
    """Write a checkpoint in LLaDA's format, with a tokenizer of one character a token, in one or
    several shards.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder, config["vocab_size"])
    if shards == 1:
        return write_files(folder, weights, config)
    (folder / "config.json").write_text(json.dumps(config))
    names = sorted(weights)
    index: dict[str, str] = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        part = {name: weights[name] for name in names[shard::shards]}
        save_file(part, folder / file, metadata={"format": "pt"})
        index |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": index})
    )
    return folder


def write_tokenizer(folder: Path, vocab_size: int) -> None:
    """Write a tokenizer of the letters a-z, space and special tokens; the last two ids are end and
    mask.
    """
    special = ["<unk>", "<|endoftext|>", "<|mdm_mask|>"]
    others = [f"<{i}>" for i in range(vocab_size - len(LETTERS) - 3)]
    write_words(
        folder, [*LETTERS, "<unk>", *others, *special[1:]], special, unk_token="<unk>",
        mask_token="<|mdm_mask|>", eos_token="<|endoftext|>", pad_token="<|endoftext|>",
    )  # fmt: skip


Kept = dict[int, dict[str, Tensor]]
"""Keys, not rotated, and values by layer."""


class ReferenceLLaDA(Reference):
    """LLaDA's computation: of a text, or of a window of it against what was kept of the rest."""

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float32) -> None:
        self.config = json.loads((folder / "config.json").read_text())
        super().__init__(folder, shape_of(self.config), dtype)

    def logits(  # type: ignore[override]
        self, ids: list[int], kept: Kept | None = None, window: tuple[int, int] | None = None
    ) -> Tensor:
        """Return the logits [N, rows] of one sequence, or of its window, whose keys and values
        replace those kept.
        """
        first, stop = window or (0, len(ids))
        self._kept = {} if kept is None else kept
        return self.rows(ids[first:stop], positions=range(first, stop))

    def _keys(
        self, layer: int, key: Tensor, value: Tensor, places: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        kept, first = self._kept.setdefault(layer, {}), int(places[0])
        for name, fresh in (("k", key), ("v", value)):
            before = kept.get(name, fresh)
            kept[name] = torch.cat([before[:first], fresh, before[first + len(fresh) :]])
        return kept["k"], kept["v"], torch.arange(len(kept["k"]))


def naive_decode(
    model: ReferenceLLaDA,
    prompt: list[int],
    length: int,
    block_length: int,
    tokens_per_step: int | None = None,
    steps: int | None = None,
    cfg_scale: float = 0.0,
    cache: str = "none",
    logits_eos_inf: bool = False,
    confidence_eos_eot_inf: bool = False,
) -> list[int]:
    """Return prompt + response as LLaDA's published sampler writes it at temperature 0, in float64,
    one by one.

    cache: "prefix" or "dual", as Fast-dLLM's samplers. logits_eos_inf, confidence_eos_eot_inf: as
    LLaDA's.
    """
    end = model.config["eos_token_id"]
    ends = ([end] if logits_eos_inf else [], [end, END_BY_NAME] if confidence_eos_eot_inf else [])
    ids = prompt + [model.config["mask_token_id"]] * length
    num_blocks = math.ceil(length / block_length)
    for block in range(num_blocks):
        start = len(prompt) + block * block_length
        end = min(start + block_length, len(ids))
        if tokens_per_step is not None:
            quotas = even_quotas(end - start, tokens_per_step)
        else:
            assert steps is not None
            size, block_steps = end - start, steps // num_blocks
            quotas = [
                size // block_steps + (step < size % block_steps) for step in range(block_steps)
            ]
        naive_block(model, ids, (start, end), quotas, cache, {}, 0, len(prompt), cfg_scale, ends)
    return ids


def even_quotas(size: int, tokens_per_step: int) -> list[int]:
    """Return how many tokens each step commits."""
    return [min(tokens_per_step, size - done) for done in range(0, size, tokens_per_step)]


def naive_block(
    model: ReferenceLLaDA,
    ids: list[int],
    block: tuple[int, int],
    quotas: list[int],
    cache: str,
    kept: Kept,
    first: int,
    prompt_length: int = 0,
    cfg_scale: float = 0.0,
    ends: tuple[list[int], list[int]] = ([], []),
) -> None:
    """Fill a block in place. `first`: what the block's first pass runs from; before it all comes
    from `kept`.

    ends: tokens whose logits are -inf, and those whose logits are -inf once the candidates are
    chosen.
    """
    mask, (start, end) = model.config["mask_token_id"], block
    for step, quota in enumerate(quotas):
        window = (start, len(ids) if cache == "prefix" else end)
        if cache == "none" or step == 0:
            window = (first, len(ids))
        logits = torch.full(
            (len(ids), model.config["embedding_size"]), -math.inf, dtype=torch.float64
        )
        logits[window[0] : window[1]] = model.logits(ids, kept, window).double()
        if cfg_scale:
            bare = model.logits([mask] * prompt_length + ids[prompt_length:]).double()
            logits = bare + (cfg_scale + 1) * (logits - bare)
        logits[:, ends[0]] = -math.inf
        allowed = logits.clone()
        allowed[:, mask] = -math.inf
        best = allowed.argmax(-1)
        logits[:, ends[1]] = -math.inf
        probabilities = torch.softmax(logits, dim=-1)
        sure = {i: float(probabilities[i, best[i]]) for i in range(start, end) if ids[i] == mask}
        for i in sorted(sure, key=lambda i: -sure[i])[:quota]:
            ids[i] = int(best[i])


def naive_flexible(
    model: ReferenceLLaDA,
    prompt: list[int],
    length: int,
    block_length: int,
    tokens_per_step: int,
    cache: str,
    mask_size: int,
) -> list[tuple[list[int], float]]:
    """Return the texts of the paper's Algorithm 1, 10 in all, with their DiSE over the last ten
    tokens that are no end.

    With a cache, what stands before the tail is kept from the first pass of the first extension,
    for all of them; where the whole response is the tail, each block's first pass runs it all.
    """
    mask, end_token, size = model.config["mask_token_id"], model.config["eos_token_id"], len(prompt)
    ids = naive_decode(model, prompt, length, block_length, tokens_per_step, cache=cache)
    ids = prompt + [token for token in ids[size:] if token != end_token]
    texts: list[tuple[list[int], float]] = []
    kept: Kept = {}
    for extension in range(10):
        if extension:
            num_masked = min(mask_size + extension - 1, len(ids) - size)
            tail = len(ids) - num_masked
            ids = ids[:tail] + [mask] * (num_masked + 1)
            for start in range(tail, len(ids), block_length):
                end = min(start + block_length, len(ids))
                is_new = cache == "none" or tail == size or not kept
                quotas = even_quotas(end - start, tokens_per_step)
                first = 0 if is_new else tail
                naive_block(model, ids, (start, end), quotas, cache, kept, first)
        logprobs = torch.log_softmax(model.logits(ids).double(), dim=-1)
        last = [i for i in range(size, len(ids)) if ids[i] != end_token][-10:]
        texts.append((list(ids), float(logprobs[last, [ids[i] for i in last]].mean())))
    return texts


def checkpoint(folder: Path, shards: int = 1, gain: float = 1.6, **changes: object) -> Path:
    config = default_config(**changes)
    return write_checkpoint(folder, config, random_weights(config, gain), shards)
