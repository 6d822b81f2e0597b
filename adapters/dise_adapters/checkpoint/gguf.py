"""GGUF files of diffusion models: llama.cpp's format of configuration, tokenizer and weights in one
file, told here as a config.json and weights by transformers' names.

The package gguf knows the types of weights. Its reader takes ten times as long and 480 MB for
Dream's vocabulary, and reads on behind the end of a file.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dise_adapters.checkpoint.files import refused
from dise_core import CheckpointError, InputError
from dise_core.records import JsonFields

if TYPE_CHECKING:
    from torch import Tensor

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


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A weight in a file, which is read and dequantized when it is indexed, as safetensors' slices.

    kind: gguf's type. shape: [rows, columns] or [columns]. row_bytes, start: the bytes of a row,
    and the first one. heads: those whose rows stand as pairs, one of each half; 0 where rows are in
    order.
    """

    path: Path
    kind: int
    shape: tuple[int, ...]
    row_bytes: int
    start: int
    heads: int

    def __getitem__(self, _: object) -> Tensor:
        """Return all of it, in float32. Raises NotImplementedError where gguf cannot do that."""
        import gguf
        import torch

        shape = (*self.shape[:-1], self.row_bytes)
        stored = np.memmap(self.path, np.uint8, "r", self.start, shape)
        weight = np.array(gguf.dequantize(stored, gguf.GGMLQuantizationType(self.kind)))
        if self.heads:
            pairs = weight.reshape(self.heads, -1, 2, weight.shape[-1])
            weight = pairs.swapaxes(1, 2).reshape(weight.shape)
        return torch.from_numpy(weight)


@dataclass(frozen=True, slots=True)
class GgufFile:
    """What the head of a file tells. tensors: a diffusion model's, by transformers' names."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]

    def get_tensor(self, name: str) -> Tensor:
        """Return a weight, as safetensors' files do."""
        return self.tensors[name][...]

    def config(self, where: str) -> JsonFields:
        """Return the fields of config.json; without a name of ARCHITECTURES, model_type alone.

        where: the file, for errors. Raises CheckpointError for what the fields cannot say.
        """
        name = str(self.metadata.get("general.architecture"))
        fields: dict[str, Any] = {"model_type": name}
        if name not in ARCHITECTURES:
            return fields
        architecture, is_shifted = ARCHITECTURES[name]
        fields |= {"rope_theta": 10000.0, "architectures": [architecture]}
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
                raise CheckpointError(f"{where}: {key}={found!r:.80} is not covered")
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
        head = Head(data)
        num_tensors, metadata = begun(head)
        if metadata.get("general.architecture") not in ARCHITECTURES:
            return GgufFile(metadata, {})
        listed = listed_weights(head, num_tensors)
    alignment = metadata.get("general.alignment", 32)
    start, tensors = -(-head.at // alignment) * alignment, dict[str, GgufTensor]()
    for stored_name, shape, kind, offset in listed:
        part, name, heads = _part(stored_name, metadata)
        whole = GgufTensor(path, kind, shape, _row_bytes(kind, shape), start + offset, heads)
        num_bytes = math.prod(shape[:-1]) * whole.row_bytes
        if whole.start + num_bytes > size:
            end = whole.start + num_bytes
            raise ValueError(f"it is cut off: it ends at {size}, {stored_name!r:.80} at {end}")
        if "{}" not in part:
            tensors[name] = whole
            continue
        for expert in range(shape[0]):
            place = whole.start + expert * num_bytes // shape[0]
            tensors[name.format(expert)] = replace(whole, shape=shape[1:], start=place)
    return GgufFile(metadata, tensors)


def begun(head: Head) -> tuple[int, dict[str, Any]]:
    """Return the number of weights in a file, and its metadata."""
    magic, version, num_tensors, num_values = head.take("4sIQQ")
    if magic != b"GGUF" or version not in (2, 3):
        raise ValueError("it is no GGUF file of version 2 or 3")
    return num_tensors, {head.text(): head.value() for _ in range(num_values)}


def listed_weights(head: Head, num_tensors: int) -> list[tuple[str, tuple[int, ...], int, int]]:
    """Return the weights' names, shapes, types and places, which follow the metadata."""
    return [(head.text(), head.shape(), *head.take("IQ")) for _ in range(num_tensors)]


class Head:
    """The head of a file, of which one value after the other is taken."""

    def __init__(self, data: mmap) -> None:
        self.at, self._data = 0, data

    def take(self, form: str) -> tuple[Any, ...]:
        """Return values of struct's types. Raises ValueError where the file ends before them."""
        start, self.at = self.at, self.at + struct.calcsize(f"<{form}")
        if self.at > len(self._data):
            raise ValueError(f"it is cut off: it ends at {len(self._data)}, within its head")
        return struct.unpack_from(f"<{form}", self._data, start)

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
        if kind == STRING:
            return [self.text() for _ in range(count)]
        return list(self.take(f"{count}{SCALARS[kind]}"))

    def shape(self) -> tuple[int, ...]:
        [num_dimensions] = self.take("I")
        return self.take(f"{num_dimensions}Q")[::-1]


def _part(stored_name: str, metadata: Mapping[str, Any]) -> tuple[str, str, int]:
    """Return the part of a decoder that a weight is of and its name, as transformers calls them,
    and the heads whose rows stand as pairs. A name that is not known stays, and is refused as any
    that the model lacks.
    """
    found = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)(\.weight|\.bias)", stored_name)
    if found is None or found[2] not in PARTS:
        return "", stored_name, 0
    layer, stored, suffix = found.groups()
    heads = 0
    if metadata["general.architecture"] == "llada" and stored in ("attn_q", "attn_k"):
        heads = metadata.get("llada.attention.head_count", 0)
        if stored == "attn_k":
            heads = metadata.get("llada.attention.head_count_kv", heads)
    prefix = "" if layer is None else f"model.layers.{layer}."
    return PARTS[stored], prefix + PARTS[stored] + suffix, heads


def _row_bytes(kind: int, shape: tuple[int, ...]) -> int:
    """Return the bytes of a row of that shape and of gguf's type."""
    try:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
    except ImportError as error:
        raise InputError("GGUF files need gguf: pip install 'gguf>=0.17'", "model") from error
    block, num_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    if not shape or not all(shape) or shape[-1] % block:
        raise ValueError(f"a weight in blocks of {block} cannot have the shape {shape!r:.80}")
    return int(shape[-1] // block * num_bytes)
