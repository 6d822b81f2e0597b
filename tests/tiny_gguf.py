"""A tiny Llama with random weights and a tokenizer of single bytes, as a GGUF file."""

from pathlib import Path

import gguf
import numpy as np
from transformers.convert_slow_tokenizer import bytes_to_unicode

HIDDEN, INNER, HEADS, LAYERS = 32, 64, 4, 2
WORDS = ["<s>", "</s>", *bytes_to_unicode().values(), "th"]
LINEAR = {
    **dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_output"), (HIDDEN, HIDDEN)),
    **dict.fromkeys(("ffn_gate", "ffn_up"), (INNER, HIDDEN)),
    "ffn_down": (HIDDEN, INNER),
}


def write(path: Path) -> Path:
    """Write the file, and return its path."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(WORDS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(WORDS)
    writer.add_token_types([3, 3, *[1] * (len(WORDS) - 2)])
    writer.add_token_merges(["t h"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    for name, weights in _tensors().items():
        writer.add_tensor(name, weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tensors() -> dict[str, np.ndarray]:
    drawn, ones = np.random.default_rng(0), np.ones(HIDDEN, np.float32)
    shapes = {
        f"blk.{layer}.{name}": shape for layer in range(LAYERS) for name, shape in LINEAR.items()
    }
    shapes |= dict.fromkeys(("token_embd", "output"), (len(WORDS), HIDDEN))
    norms = [f"blk.{layer}.{name}_norm" for layer in range(LAYERS) for name in ("attn", "ffn")]
    return {
        **{f"{name}.weight": ones for name in (*norms, "output_norm")},
        **{
            f"{name}.weight": drawn.normal(0, 0.05, shape).astype(np.float32)
            for name, shape in shapes.items()
        },
    }
