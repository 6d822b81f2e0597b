"""GGUF files of diffusion models: llama.cpp's format of configuration, tokenizer and weights in one
file, told here as a config.json and weights by transformers' names.

The package gguf knows the types of weights. Its reader takes ten times as long and 480 MB for
Dream's vocabulary, and reads on behind the end of a file.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dise_adapters.checkpoint.files import refused
from dise_core import CheckpointError, InputError
from dise_core.records import JsonFields

SCALARS = dict(zip((*range(8), 10, 11, 12), "BbHhIif?Qqd", strict=True))
"""The types of numbers in metadata, as struct's formats."""

STRING, ARRAY = 8, 9

ARCHITECTURES = {
    "llada": ("LLaDAModelLM", False),
    "dream": ("DreamModel", True),
    "llada-moe": ("LLaDAMoEModelLM", False),
    "rnd1": ("RND1LM", True),
}
"""llama.cpp's names of diffusion models, with the class that config.json names, and whether row
i - 1 of the logits predicts token i.
"""

FIELDS = {
    "{}.embedding_length": ("hidden_size", "d_model"),
    "{}.block_count": ("num_hidden_layers", "n_layers"),
    "{}.attention.head_count": ("num_attention_heads", "n_heads"),
    "{}.attention.head_count_kv": ("num_key_value_heads", "n_kv_heads"),
    "{}.attention.key_length": ("head_dim",),
    "{}.attention.layer_norm_rms_epsilon": ("rms_norm_eps",),
    "{}.rope.freq_base": ("rope_theta",),
    "{}.feed_forward_length": ("intermediate_size", "mlp_hidden_size"),
    "{}.context_length": ("max_position_embeddings", "max_sequence_length"),
    "{}.expert_count": ("num_experts",),
    "{}.expert_used_count": ("num_experts_per_tok",),
    "{}.expert_feed_forward_length": ("moe_intermediate_size", "expert_intermediate_size"),
    "tokenizer.ggml.mask_token_id": ("mask_token_id",),
    "tokenizer.ggml.eos_token_id": ("eos_token_id",),
}
"""Metadata, {} being the architecture, as Qwen's and LLaDA's fields of config.json."""

PARTS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_output": "self_attn.o_proj",
    **{f"attn_{part}": f"self_attn.{part}_proj" for part in "qkv"},
    **{f"attn_{part}_norm": f"self_attn.{part}_norm" for part in "qk"},
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate_inp": "mlp.gate",
    **{f"ffn_{part}": f"mlp.{part}_proj" for part in ("gate", "up", "down")},
    **{f"ffn_{part}_exps": f"mlp.experts.{{}}.{part}_proj" for part in ("gate", "up", "down")},
}
"""The parts of a decoder as transformers calls them, {} being the number of an expert."""

THETA = 10000.0
"""The rotary base where a file has none."""


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A weight: gguf's type, [rows, columns] or [columns], the bytes of a row, the first byte.

    heads: those whose rows stand as pairs, one of each half; 0 where rows are in order.
    """

    kind: int
    shape: tuple[int, ...]
    row_bytes: int
    start: int
    heads: int


@dataclass(frozen=True, slots=True)
class GgufFile:
    """What the head of a file tells. tensors: a diffusion model's, by transformers' names."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]

    def get_tensor(self, name: str) -> NDArray[np.float32]:
        """Return a weight, dequantized. Raises NotImplementedError where gguf cannot do that."""
        import gguf

        tensor = self.tensors[name]
        shape = (*tensor.shape[:-1], tensor.row_bytes)
        stored = np.memmap(self.path, np.uint8, "r", tensor.start, shape)
        weight = np.array(gguf.dequantize(stored, gguf.GGMLQuantizationType(tensor.kind)))
        if not tensor.heads:
            return weight
        pairs = weight.reshape(tensor.heads, -1, 2, weight.shape[-1])
        return pairs.swapaxes(1, 2).reshape(weight.shape)

    def config(self) -> JsonFields:
        """Return the fields of config.json; without a name of ARCHITECTURES, model_type alone.

        Raises CheckpointError for what the fields cannot say.
        """
        name = str(self.metadata.get("general.architecture"))
        fields: dict[str, Any] = {"model_type": name}
        if name not in ARCHITECTURES:
            return fields
        architecture, is_shifted = ARCHITECTURES[name]
        fields |= {"rope_theta": THETA, "architectures": [architecture]}
        for key, names in FIELDS.items():
            if (value := self.metadata.get(key.format(name))) is not None:
                fields |= dict.fromkeys(names, value)
        hidden, heads = fields.get("hidden_size"), fields.get("num_attention_heads")
        if type(hidden) is type(heads) is int and heads:
            fields = {"head_dim": hidden // heads, **fields}
        expected = {
            f"{name}.attention.causal": False,
            f"{name}.rope.scaling.type": "none",
            f"{name}.rope.dimension_count": fields.get("head_dim"),
            "diffusion.shift_logits": is_shifted,
        }
        for key, value in expected.items():
            if (found := self.metadata.get(key, value)) != value:
                raise CheckpointError(f"{self.path}: {key}={found!r:.80} is not covered")
        if embedding := self.tensors.get("model.embed_tokens.weight"):
            fields["vocab_size"] = embedding.shape[0]  # which may be more than there are tokens
        is_tied = "lm_head.weight" not in self.tensors
        return {**fields, "tie_word_embeddings": is_tied, "weight_tying": is_tied}


def gguf_file(path: Path) -> GgufFile:
    """Return what the head of a file tells. Raises CheckpointError for one that cannot be right,
    InputError for a diffusion model's without the package gguf.
    """
    with refused(f"cannot load {path}"):
        stat = path.stat()
        return _read_head(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=1)
def _read_head(path: Path, size: int, _time: int) -> GgufFile:
    """Read a file, which all adapters ask about in turn."""
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        head = _Head(data)
        magic, version, num_tensors, num_values = head.take("4sIQQ")
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError("it is no GGUF file of version 2 or 3")
        metadata = {head.text(): head.value() for _ in range(num_values)}
        if metadata.get("general.architecture") not in ARCHITECTURES:
            return GgufFile(path, metadata, {})
        listed = [(head.text(), *head.place()) for _ in range(num_tensors)]
    alignment = metadata.get("general.alignment", 32)
    start, tensors = -(-head.at // alignment) * alignment, dict[str, GgufTensor]()
    for stored_name, shape, kind, offset in listed:
        for name, tensor in _weights(stored_name, shape, kind, start + offset, metadata):
            end = tensor.start + math.prod(tensor.shape[:-1]) * tensor.row_bytes
            if end > size or name in tensors:
                problem = "holds it twice" if end <= size else f"has {size} bytes, it ends at {end}"
                raise ValueError(f"{stored_name!r:.80}: the file {problem}")
            tensors[name] = tensor
    return GgufFile(path, metadata, tensors)


class _Head:
    """The head of a file, of which one value after the other is taken; what the file does not hold
    raises struct.error.
    """

    def __init__(self, data: mmap) -> None:
        self.at, self._data = 0, data

    def take(self, form: str) -> tuple[Any, ...]:
        """Return values of struct's types."""
        values = struct.unpack_from(f"<{form}", self._data, self.at)
        self.at += struct.calcsize(f"<{form}")
        return values

    def text(self) -> str:
        [length] = self.take("Q")
        [text] = self.take(f"{length}s")
        return str(text, "utf-8")

    def value(self) -> Any:
        """Return a number, a text, or a list of either."""
        [kind] = self.take("I")
        if kind == STRING:
            return self.text()
        if kind != ARRAY:
            return self.take(SCALARS[kind])[0]
        kind, count = self.take("IQ")
        return (
            [self.text() for _ in range(count)]
            if kind == STRING
            else [*self.take(f"{count}{SCALARS[kind]}")]
        )

    def place(self) -> tuple[tuple[int, ...], int, int]:
        """Return the shape of a weight, its type, and where it stands behind the head."""
        [num_dimensions] = self.take("I")
        shape = self.take(f"{num_dimensions}Q")[::-1]
        kind, offset = self.take("IQ")
        return shape, kind, offset


def _weights(
    stored_name: str, shape: tuple[int, ...], kind: int, start: int, metadata: Mapping[str, Any]
) -> Iterator[tuple[str, GgufTensor]]:
    """Yield a weight by its name in transformers, one of all experts as that of each. A name that
    is not known stays, and is then refused as any that the model lacks.
    """
    try:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
    except ImportError as error:
        raise InputError("GGUF files need gguf: pip install 'gguf>=0.17'", "model") from error
    block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    if not shape or not all(shape) or shape[-1] % block:
        raise ValueError(f"{stored_name!r:.80} cannot have the shape {shape!r:.80}")
    row_bytes, name, heads = shape[-1] // block * block_bytes, stored_name, 0
    if found := re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)(\.weight|\.bias)", stored_name):
        layer, part, suffix = found.groups()
        prefix = "" if layer is None else f"model.layers.{layer}."
        name = prefix + PARTS[part] + suffix if part in PARTS else stored_name
        if metadata["general.architecture"] == "llada" and part in ("attn_q", "attn_k"):
            heads = metadata.get("llada.attention.head_count", 0)
            if part == "attn_k":
                heads = metadata.get("llada.attention.head_count_kv", heads)
    if "{}" not in name:
        yield name, GgufTensor(kind, shape, row_bytes, start, heads)
        return
    expert_bytes = math.prod(shape[1:-1]) * row_bytes
    for expert in range(shape[0]):
        place = start + expert * expert_bytes
        yield name.format(expert), GgufTensor(kind, shape[1:], row_bytes, place, heads)
