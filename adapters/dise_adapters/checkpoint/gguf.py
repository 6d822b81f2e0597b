"""GGUF files of diffusion models: llama.cpp's format of configuration, tokenizer and
weights in one file, presented as a config.json and weights by transformers' names.

The package gguf knows the types of weights. Its reader takes ten times as long and 480 MB
for Dream's vocabulary, and reads on behind the end of a file.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from dise_adapters.checkpoint.files import refused
from dise_adapters.checkpoint.weights import Stored, WeightSource
from dise_core import CheckpointError, InputError
from dise_core.records import JsonFields

if TYPE_CHECKING:
    from torch import Tensor, device

SCALARS = dict(zip((*range(8), 10, 11, 12), "BbHhIif?Qqd", strict=True))
"""The types of numbers in metadata, as struct's formats."""

STRING, ARRAY = 8, 9

ARCHITECTURES = {
    "llada": ("LLaDAModelLM", False),
    "dream": ("DreamModel", True),
    "llada-moe": ("LLaDAMoEModelLM", False),
    "rnd1": ("RND1LM", True),
}
"""llama.cpp's names: the class in config.json, and whether row i - 1 predicts token i."""

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

TYPES = {0: "F32", 1: "F16", 30: "BF16"}
"""gguf's types that are not packed, as safetensors calls them."""


@dataclass(frozen=True, slots=True)
class GgufTensor(Stored):
    """A weight in a file, which is read and dequantized when it is indexed, as
    safetensors' slices.

    kind: gguf's type. shape: [rows, columns] or [columns]. row_bytes, start: the bytes of
    a row, and the first one. heads: those whose rows stand as pairs, one of each half; 0
    where rows are in order.
    """

    kind: int
    row_bytes: int
    start: int
    heads: int

    def __getitem__(self, _: object) -> Tensor:
        """Return all of it in float32. Raises NotImplementedError where gguf cannot."""
        import gguf
        import torch

        shape = (*self.shape[:-1], self.row_bytes)
        stored = np.memmap(self.path, np.uint8, "r", self.start, shape)
        weight = np.array(gguf.dequantize(stored, gguf.GGMLQuantizationType(self.kind)))
        if self.heads:
            pairs = weight.reshape(self.heads, -1, 2, weight.shape[-1])
            weight = pairs.swapaxes(1, 2).reshape(weight.shape)
        return torch.from_numpy(weight)


@dataclass(frozen=True)
class GgufFile(WeightSource):
    """A file by its head. listed: its weights' names, shapes, types and places behind the
    first byte of all. start, size: that byte, and the bytes of the file.
    """

    path: Path
    metadata: Mapping[str, Any]
    listed: Sequence[tuple[str, tuple[int, ...], int, int]]
    start: int
    size: int

    @classmethod
    def at(cls, path: Path) -> Self:
        """Read a file's head. Raises CheckpointError for one that cannot be right."""
        with (
            refused(f"cannot load {path}"),
            path.open("rb") as file,
            mmap(file.fileno(), 0, access=ACCESS_READ) as data,
        ):
            head = Head(data)
            magic, version, num_tensors, num_values = head.take("4sIQQ")
            if magic != b"GGUF" or version not in (2, 3):
                raise ValueError("it is no GGUF file of version 2 or 3")
            metadata = {head.text(): head.value() for _ in range(num_values)}
            listed = [(head.text(), head.shape(), *head.take("IQ")) for _ in range(num_tensors)]
            alignment = metadata.get("general.alignment", 32)
            return cls(path, metadata, listed, -(-head.at // alignment) * alignment, len(data))

    @property
    def folder(self) -> Path:
        return self.path.parent

    @cached_property
    def stored(self) -> Mapping[str, GgufTensor]:
        """The weights by transformers' names for a diffusion model's; those of another
        model keep theirs. Raises CheckpointError for a file that is cut off, InputError
        without the package gguf.
        """
        tensors = dict[str, GgufTensor]()
        with refused(f"cannot load {self.path}"):
            for stored_name, shape, kind, offset in self.listed:
                part, name, heads = _part(stored_name, self.metadata)
                weight = GgufTensor(
                    self.path, TYPES.get(kind, "packed"), shape, kind, _row_bytes(kind, shape),
                    self.start + offset, heads,
                )  # fmt: skip
                num_bytes = math.prod(shape[:-1]) * weight.row_bytes
                if (end := weight.start + num_bytes) > self.size:
                    raise ValueError(
                        f"it is cut off: it ends at {self.size}, {stored_name!r:.80} at {end}"
                    )
                if "{}" not in part:
                    tensors[name] = weight
                    continue
                for expert in range(shape[0]):
                    place = weight.start + expert * num_bytes // shape[0]
                    tensors[name.format(expert)] = replace(weight, shape=shape[1:], start=place)
        return tensors

    def slices(self) -> dict[str, Any]:
        return dict(self.stored)

    def read(self, names: Iterable[str], place: device) -> Iterator[tuple[str, Tensor]]:  # noqa: ARG002
        for name in names:
            yield name, self.stored[name][...]

    def config(self) -> JsonFields:
        """Return the fields of config.json; without a name of ARCHITECTURES, model_type
        alone.
        Raises CheckpointError for what the fields cannot say.
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
            if (stored := self.metadata.get(key, value)) != value:
                raise CheckpointError(f"{self.path}: {key}={stored!r:.80} is not covered")
        if embedding := self.stored.get("model.embed_tokens.weight"):
            fields["vocab_size"] = embedding.shape[0]  # which may be more than there are tokens
        is_tied = "lm_head.weight" not in self.stored
        return {**fields, "tie_word_embeddings": is_tied, "weight_tying": is_tied}


class Head:
    """The head of a file, of which one value after the other is taken."""

    def __init__(self, data: mmap) -> None:
        self.at, self._data = 0, data

    def take(self, form: str) -> tuple[Any, ...]:
        """Return values of struct's types. Raises ValueError at the file's end."""
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
    """Return the part of a decoder that a weight is of and its name, as transformers
    calls them, and the heads whose rows stand as pairs. A name that is not known stays,
    and is refused as any that the model lacks.
    """
    match = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)(\.weight|\.bias)", stored_name)
    is_known = metadata.get("general.architecture") in ARCHITECTURES
    if match is None or match[2] not in PARTS or not is_known:
        return "", stored_name, 0
    layer, stored, suffix = match.groups()
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
    except ImportError:
        raise InputError("GGUF files need gguf: pip install 'gguf>=0.17'", "model") from None
    block, num_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    if not shape or not all(shape) or shape[-1] % block:
        raise ValueError(f"a weight in blocks of {block} cannot have the shape {shape!r:.80}")
    return int(shape[-1] // block * num_bytes)
