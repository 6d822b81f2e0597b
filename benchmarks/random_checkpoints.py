"""Checkpoints of any size with random weights, in shards, in the formats of LLaDA, LLaDA2,
Tiny-A2D's Qwen3 and DiffusionGemma. Their tokenizer has a token for each byte, so it spells any
prompt.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

Shapes = Iterator[tuple[str, tuple[int, ...]]]


@dataclass(frozen=True)
class Size:
    """The size of a decoder. experts: 0 for a dense one; the first layer never has any. is_a2d:
    whether it is a Qwen3 of Tiny-A2D, whose blocks LLM's `block_size` says. canvas: the length of
    DiffusionGemma's canvases, 0 for all others; its last layer sees all of a text.
    """

    width: int
    inner: int
    layers: int
    heads: int
    vocabulary: int
    key_heads: int = 0
    head: int = 0
    experts: int = 0
    per_token: int = 0
    expert_inner: int = 0
    groups: int = 0
    is_a2d: bool = False
    canvas: int = 0

    @property
    def head_dim(self) -> int:
        """The dimension of a head."""
        return self.head or self.width // self.heads


LLADA_8B = Size(4096, 12288, 32, 32, 126464)
LLADA2_MINI = Size(2048, 5120, 20, 16, 157184, 4, 128, 256, 8, 512, 8)
DIFFUSION_GEMMA = Size(2816, 2112, 1, 16, 262144, 8, 256, 128, 8, 704, canvas=256)
RANDOM_100M = Size(768, 2304, 12, 12, 8192)

SHAPES = {1: (128, 2), 10: (384, 6), 100: (960, 10)}
"""Width and layers by millions of parameters without the vocabulary's."""


def dense(vocabulary: int, width: int, layers: int, is_a2d: bool = False) -> Size:
    """Return a size of that width, with heads of 64."""
    return Size(width, 3 * width, layers, width // 64, vocabulary, is_a2d=is_a2d)


def write(
    folder: Path,
    size: Size,
    dtype: torch.dtype = torch.float32,
    shard_bytes: int = 4 * 2**30,
    device: str = "cpu",
) -> Path:
    """Write a checkpoint whose last two ids are the end and the mask token, unless there is one.

    device: where the weights are drawn, from seed 0. No more than a shard is in memory at one time.
    """
    if (folder / "config.json").is_file():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    _tokenizer(size.vocabulary).save(str(folder / "tokenizer.json"))
    config, shapes = _llada_config, _llada_shapes
    if size.canvas:
        config, shapes = _gemma_config, _gemma_shapes
    elif size.experts:
        config, shapes = _llada2_config, _llada2_shapes
    elif size.is_a2d:
        config, shapes = _a2d_config, _a2d_shapes
    generator = torch.Generator(device).manual_seed(0)
    _write_shards(folder, shapes(size), dtype, shard_bytes, generator)
    (folder / "config.json").write_text(json.dumps(config(size)))
    return folder


def _tokenizer(vocabulary: int) -> Tokenizer:
    """Return a tokenizer of a token for each byte, fillers, and the end and the mask token."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())[: vocabulary - 2]
    fillers = [f"<{i}>" for i in range(len(letters), vocabulary - 2)]
    names = [*letters, *fillers, "<|end|>", "<|mask|>"]
    tokenizer = Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(names[-2:])
    return tokenizer


def _write_shards(
    folder: Path, shapes: Shapes, dtype: torch.dtype, most: int, generator: torch.Generator
) -> None:
    weight_map: dict[str, str] = {}
    shard: dict[str, torch.Tensor] = {}
    held = count = 0

    def write_shard() -> None:
        name = f"model-{count:05d}.safetensors"
        save_file(shard, folder / name, metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(shard, name))

    for name, shape in shapes:
        weight = _drawn(name, shape, dtype, generator)
        if shard and held + weight.nbytes > most:
            write_shard()
            shard, held, count = {}, 0, count + 1
        shard[name] = weight
        held += weight.nbytes
    write_shard()
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def _drawn(
    name: str, shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    """Return ones for a norm, zeros for a router's bias, and normal weights that keep the size of
    states for a matrix.
    """
    if len(shape) == 1:
        return torch.full(shape, 0.0 if "bias" in name else 1.0, dtype=dtype)
    drawn = torch.randn(shape, generator=generator, device=generator.device, dtype=torch.float32)
    return drawn.mul_(shape[-1] ** -0.5).to(dtype).cpu()


def _llada_config(size: Size) -> Mapping[str, Any]:
    return {
        "architectures": ["LLaDAModelLM"], "model_type": "llada", "d_model": size.width,
        "n_layers": size.layers, "n_heads": size.heads, "mlp_hidden_size": size.inner,
        "vocab_size": size.vocabulary, "embedding_size": size.vocabulary,
        "max_sequence_length": 4096, "rope_theta": 500000.0, "rms_norm_eps": 1e-5,
        "mask_token_id": size.vocabulary - 1, "eos_token_id": size.vocabulary - 2,
    }  # fmt: skip


def _llada_shapes(size: Size) -> Shapes:
    d, inner, rows = size.width, size.inner, size.vocabulary
    parts: dict[str, tuple[int, ...]] = {
        **dict.fromkeys(("q_proj", "k_proj", "v_proj", "attn_out"), (d, d)),
        **dict.fromkeys(("ff_proj", "up_proj"), (inner, d)),
        **{"ff_out": (d, inner), "attn_norm": (d,), "ff_norm": (d,)},
    }
    yield "model.transformer.wte.weight", (rows, d)
    for layer, (name, shape) in itertools.product(range(size.layers), parts.items()):
        yield f"model.transformer.blocks.{layer}.{name}.weight", shape
    yield "model.transformer.ln_f.weight", (d,)
    yield "model.transformer.ff_out.weight", (rows, d)


def _a2d_config(size: Size) -> Mapping[str, Any]:
    return {
        "architectures": ["A2DQwen3LMHeadModel"], "model_type": "a2d-qwen3",
        "hidden_size": size.width, "intermediate_size": size.inner, "head_dim": size.head_dim,
        "num_hidden_layers": size.layers, "num_attention_heads": size.heads,
        "num_key_value_heads": size.heads, "vocab_size": size.vocabulary,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
        "hidden_act": "silu", "attention_bias": False, "tie_word_embeddings": False,
        "mask_token_id": size.vocabulary - 1, "eos_token_id": size.vocabulary - 2,
    }  # fmt: skip


def _a2d_shapes(size: Size) -> Shapes:
    d, inner, rows = size.width, size.inner, size.vocabulary
    parts: dict[str, tuple[int, ...]] = {
        **{f"self_attn.{name}": (d, d) for name in ("q_proj", "k_proj", "v_proj", "o_proj")},
        **{f"self_attn.{name}": (size.head_dim,) for name in ("q_norm", "k_norm")},
        **{"mlp.gate_proj": (inner, d), "mlp.up_proj": (inner, d), "mlp.down_proj": (d, inner)},
        **dict.fromkeys(("input_layernorm", "post_attention_layernorm"), (d,)),
    }
    yield "model.embed_tokens.weight", (rows, d)
    for layer, (name, shape) in itertools.product(range(size.layers), parts.items()):
        yield f"model.layers.{layer}.{name}.weight", shape
    yield "model.norm.weight", (d,)
    yield "lm_head.weight", (rows, d)


def _llada2_config(size: Size) -> Mapping[str, Any]:
    return {
        "architectures": ["LLaDA2MoeModelLM"], "model_type": "llada2_moe",
        "hidden_size": size.width, "intermediate_size": size.inner, "head_dim": size.head_dim,
        "num_hidden_layers": size.layers, "num_attention_heads": size.heads,
        "num_key_value_heads": size.key_heads, "vocab_size": size.vocabulary,
        "max_position_embeddings": 32768, "rope_theta": 600000.0, "rms_norm_eps": 1e-6,
        "hidden_act": "silu", "partial_rotary_factor": 0.5, "use_bias": False,
        "use_qkv_bias": False, "use_qk_norm": True, "tie_word_embeddings": False,
        "num_experts": size.experts, "num_experts_per_tok": size.per_token,
        "num_shared_experts": 1, "moe_intermediate_size": size.expert_inner,
        "n_group": size.groups, "topk_group": size.groups // 2, "norm_topk_prob": True,
        "routed_scaling_factor": 2.5, "first_k_dense_replace": 1, "score_function": "sigmoid",
        "router_dtype": "fp32", "moe_router_enable_expert_bias": True,
        "eos_token_id": size.vocabulary - 2, "mask_token_id": size.vocabulary - 1,
    }  # fmt: skip


def _llada2_shapes(size: Size) -> Shapes:
    d, head = size.width, size.head_dim
    yield "model.word_embeddings.weight", (size.vocabulary, d)
    for layer in range(size.layers):
        prefix = f"model.layers.{layer}"
        rows = (size.heads + 2 * size.key_heads) * head
        yield f"{prefix}.attention.query_key_value.weight", (rows, d)
        yield f"{prefix}.attention.dense.weight", (d, size.heads * head)
        for name in ("query_layernorm", "key_layernorm"):
            yield f"{prefix}.attention.{name}.weight", (head,)
        yield from _llada2_mlp(size, f"{prefix}.mlp", is_dense=layer == 0)
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"{prefix}.{name}.weight", (d,)
    yield "model.norm.weight", (d,)
    yield "lm_head.weight", (size.vocabulary, d)


def _gemma_config(size: Size) -> Mapping[str, Any]:
    text = {
        "vocab_size": size.vocabulary, "hidden_size": size.width, "intermediate_size": size.inner,
        "num_hidden_layers": size.layers, "num_attention_heads": size.heads,
        "num_key_value_heads": size.key_heads, "head_dim": size.head_dim,
        "global_head_dim": 2 * size.head_dim, "num_global_key_value_heads": size.key_heads // 4,
        "max_position_embeddings": 262144, "sliding_window": 1024, "rms_norm_eps": 1e-6,
        "hidden_activation": "gelu_pytorch_tanh", "num_experts": size.experts,
        "top_k_experts": size.per_token, "moe_intermediate_size": size.expert_inner,
        "use_bidirectional_attention": "vision", "eos_token_id": size.vocabulary - 2,
        "layer_types": [*["sliding_attention"] * (size.layers - 1), "full_attention"],
    }  # fmt: skip
    return {
        "architectures": ["DiffusionGemmaForBlockDiffusion"], "model_type": "diffusion_gemma",
        "canvas_length": size.canvas, "text_config": text,
    }  # fmt: skip


def _gemma_shapes(size: Size) -> Shapes:
    d, inner = size.width, size.expert_inner
    yield "model.decoder.embed_tokens.weight", (size.vocabulary, d)
    for layer in range(size.layers):
        prefix, is_last = f"model.decoder.layers.{layer}.", layer == size.layers - 1
        head, keys = (1 + is_last) * size.head_dim, size.key_heads // (4 if is_last else 1)
        heads = {"q": size.heads, "k": keys} | ({} if is_last else {"v": keys})
        for name, count in heads.items():
            yield f"{prefix}self_attn.{name}_proj.weight", (count * head, d)
        yield f"{prefix}self_attn.o_proj.weight", (d, size.heads * head)
        for name in "qk":
            yield f"{prefix}self_attn.{name}_norm.weight", (head,)
        yield from _llada2_mlp(size, f"{prefix}mlp", is_dense=True)
        yield f"{prefix}experts.gate_up_proj", (size.experts, 2 * inner, d)
        yield f"{prefix}experts.down_proj", (size.experts, d, inner)
        yield f"{prefix}router.proj.weight", (size.experts, d)
        yield f"{prefix}router.scale", (d,)
        yield f"{prefix}router.per_expert_scale", (size.experts,)
        for place in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
            yield f"{prefix}{place}_layernorm.weight", (d,)
        for place in ("post_feedforward_layernorm_1", "post_feedforward_layernorm_2"):
            yield f"{prefix}{place}.weight", (d,)
        yield f"{prefix}pre_feedforward_layernorm_2.weight", (d,)
        yield f"{prefix}layer_scalar", (1,)
        yield f"model.encoder.language_model.layers.{layer}.layer_scalar", (1,)
    yield "model.decoder.norm.weight", (d,)
    yield "model.decoder.self_conditioning.pre_norm.weight", (d,)
    yield from _llada2_mlp(size, "model.decoder.self_conditioning", is_dense=True)


def _llada2_mlp(size: Size, prefix: str, is_dense: bool) -> Shapes:
    inner = {prefix: size.inner}
    if not is_dense:
        yield f"{prefix}.gate.weight", (size.experts, size.width)
        yield f"{prefix}.gate.expert_bias", (size.experts,)
        names = [
            *(f"{prefix}.experts.{i}" for i in range(size.experts)),
            f"{prefix}.shared_experts",
        ]
        inner = dict.fromkeys(names, size.expert_inner)
    for name, rows in inner.items():
        for part in ("gate_proj", "up_proj"):
            yield f"{name}.{part}.weight", (rows, size.width)
        yield f"{name}.down_proj.weight", (size.width, rows)
