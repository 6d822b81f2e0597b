"""Checkpoints far larger than any machine, of which only the headers are written."""

import json
import math
import os
import struct
from pathlib import Path

from tests.reference_llada import default_config, write_tokenizer

WIDTH, INNER, LAYERS = 8192, 24576, 1000


def llada(folder: Path) -> Path:
    """Write 0.87 trillion weights in LLaDA's format."""
    sizes = {"d_model": WIDTH, "n_layers": LAYERS, "n_heads": 64, "n_kv_heads": 64}
    config = default_config(**sizes, mlp_hidden_size=INNER)
    prefix = "model.transformer"
    names = ("q_proj", "k_proj", "v_proj", "attn_out", "ff_proj", "up_proj", "ff_out")
    norms = ("attn_norm", "ff_norm")
    ends = (f"{prefix}.wte", f"{prefix}.ff_out", f"{prefix}.ln_f")
    return _written(folder, config, f"{prefix}.blocks", names, norms, ends)


def llama(folder: Path) -> Path:
    """Write as many of an auto-regressive model, in Llama's format."""
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS, "num_attention_heads": 64, "intermediate_size": INNER,
        "vocab_size": 52, "max_position_embeddings": 96, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "tie_word_embeddings": False, "eos_token_id": 48, "bos_token_id": 40,
    }  # fmt: skip
    parts = [f"self_attn.{part}_proj" for part in "qkvo"]
    names = (*parts, "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
    norms = ("input_layernorm", "post_attention_layernorm")
    ends = ("model.embed_tokens", "lm_head", "model.norm")
    return _written(folder, config, "model.layers", names, norms, ends)


def _written(
    folder: Path,
    config: dict[str, object],
    layers: str,
    names: tuple[str, ...],
    norms: tuple[str, ...],
    ends: tuple[str, ...],
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder, 50)
    (folder / "config.json").write_text(json.dumps(config))
    square, up, down = (WIDTH, WIDTH), (INNER, WIDTH), (WIDTH, INNER)
    of_names = dict(zip(names, (square,) * 4 + (up, up, down), strict=True))
    of_layer = of_names | dict.fromkeys(norms, (WIDTH,))
    shapes: dict[str, tuple[int, ...]] = dict(
        zip(ends, ((52, WIDTH), (52, WIDTH), (WIDTH,)), strict=True)
    )
    for layer in range(LAYERS):
        shapes |= {f"{layers}.{layer}.{name}": shape for name, shape in of_layer.items()}
    header, at = {}, 0
    for name, shape in shapes.items():
        span = [at, at := at + 2 * math.prod(shape)]
        header[f"{name}.weight"] = {"dtype": "BF16", "shape": shape, "data_offsets": span}
    text = json.dumps(header).encode()
    path = folder / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    os.truncate(path, 8 + len(text) + at)
    return folder
