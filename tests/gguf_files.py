"""Tiny diffusion models in safetensors and the same in GGUF, as llama.cpp's converter writes them.
Only tests use it.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, trainers
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

from tests import reference_dream, reference_llada
from tests.published import LLADA_MOE, RND1
from tests.reference_backbone import write_files

LEARNED, VOCABULARY = 400, 416
"""Tokens of the tokenizer beside those that are added, and rows of the embedding."""

PLAIN = "<tool_call>"
"""The added token that is not special."""

TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"

BAILING = (
    r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
"""llama.cpp's own writing of the split."""


@dataclass(frozen=True)
class Tiny:
    """A model that llama.cpp knows by that name. special: tokens, the first one starts a text, the
    second one ends it. mask: the id of its mask. write: writes its weights and config.json.
    """

    name: str
    pre: str
    special: tuple[str, ...]
    mask: int
    write: Callable[[Path, dict[str, object]], Path]

    def folder(self, path: Path) -> Path:
        """Write the checkpoint in safetensors."""
        ids = {"mask_token_id": self.mask, "eos_token_id": LEARNED + 1}
        self.write(path, {**ids, "bos_token_id": LEARNED, "vocab_size": VOCABULARY})
        for name in ("vocab.json", "merges.txt"):
            (path / name).unlink(missing_ok=True)
        self._tokenizer().save(str(path / "tokenizer.json"))
        named = {"bos_token": self.special[0], "eos_token": self.special[1]}
        settings = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE}
        (path / "tokenizer_config.json").write_text(json.dumps(settings | named))
        return path

    def _tokenizer(self) -> Tokenizer:
        made = Tokenizer(models.BPE())
        split = Split(Regex(PRETOKENIZE_REGEX if self.pre == "qwen2" else BAILING), "isolated")
        made.pre_tokenizer = Sequence([split, ByteLevel(add_prefix_space=False, use_regex=False)])
        made.normalizer, made.decoder = normalizers.NFC(), decoders.ByteLevel()
        alphabet = ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=LEARNED, initial_alphabet=alphabet, show_progress=False
        )
        made.train([__file__], trainer)
        assert made.get_vocab_size() == LEARNED
        made.add_special_tokens([AddedToken(name, normalized=False) for name in self.special])
        made.add_tokens([AddedToken(PLAIN, normalized=False)])
        return made


def _llada(path: Path, fields: dict[str, object]) -> Path:
    sizes = {"d_model": 256, "n_heads": 4, "n_kv_heads": 2, "mlp_hidden_size": 256}
    config = reference_llada.default_config(**sizes, **fields, embedding_size=VOCABULARY)
    return reference_llada.write_checkpoint(path, config, reference_llada.random_weights(config))


def _dream(path: Path, fields: dict[str, object]) -> Path:
    sizes = {"hidden_size": 256, "intermediate_size": 256}
    return reference_dream.write_checkpoint(path, **sizes, **fields)


def _mixture(of: Any, head_dim: int) -> Callable[[Path, dict[str, object]], Path]:
    sized = replace(of.shape, width=256, head_dim=head_dim, expert_hidden=256, vocab=VOCABULARY)
    sizes = {"expert_intermediate_size": 256, "moe_intermediate_size": 256, "head_dim": head_dim}
    made = replace(of, shape=replace(sized, gain=1.6), config={**of.config, **sizes})
    return lambda path, fields: made.write_into(path, **fields)


START, END = "<|startoftext|>", "<|endoftext|>"
MODELS = {
    tiny.name: tiny
    for tiny in (
        Tiny("llada", "bailingmoe", (START, END, "<|eot_id|>", "<|mdm_mask|>"), 403, _llada),
        Tiny("dream", "qwen2", ("<|beginoftext|>", END, "<|im_end|>", "<|mask|>"), 403, _dream),
        Tiny("llada-moe", "llada-moe", (START, END, "<|role_end|>", "<|mask|>"), 403,
             _mixture(LLADA_MOE, 64)),
        Tiny("rnd1", "qwen2", ("<|im_start|>", "<|im_end|>", END), 415, _mixture(RND1, 128)),
    )
}  # fmt: skip


def convert(tiny: Tiny, folder: Path, path: Path, kind: str = "F32", **changes: object) -> Path:
    """Write the folder's checkpoint as a GGUF file with matrices of that type, and what their
    numbers stand for as a checkpoint beside it, which is returned. changes: of the metadata, by
    their names with __ for a dot; None leaves one out.
    """
    config = json.loads((folder / "config.json").read_text())
    writer, values = gguf.GGUFWriter(path, tiny.name), dict[str, torch.Tensor]()
    made = {name.replace("__", "."): value for name, value in changes.items()}
    _write_metadata(writer, _metadata(tiny, folder, config) | made)
    weights, stacked = load_file(folder / "model.safetensors"), dict[str, list[np.ndarray]]()
    for name in sorted(weights):
        is_matrix = weights[name].dim() > 1 and not name.endswith("mlp.gate.weight")
        blocks, numbers = packed(weights[name].numpy(), kind if is_matrix else "F32")
        values[name] = torch.from_numpy(numbers)
        if tiny.name == "llada" and (part := re.search(r"[qk]_proj\.weight", name)):
            blocks = _interleaved(blocks, config["n_heads" if part[0][0] == "q" else "n_kv_heads"])
        stacked.setdefault(re.sub(r"experts\.\d+", "experts", name), []).append(blocks)
    architecture = next(i for i, name in gguf.MODEL_ARCH_NAMES.items() if name == tiny.name)
    names = gguf.get_tensor_name_map(architecture, 2)
    for name, parts in stacked.items():
        data = np.stack(parts) if ".experts." in name else parts[0]
        stored_kind = gguf.GGMLQuantizationType[kind if data.dtype == np.uint8 else "F32"]
        writer.add_tensor(names.get_name(name, (".weight", ".bias")), data, raw_dtype=stored_kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    expected = write_files(path.with_suffix(""), values, config)
    for file in folder.glob("tokenizer*"):
        shutil.copy(file, expected)
    return expected


def _write_metadata(writer: gguf.GGUFWriter, metadata: Mapping[str, object]) -> None:
    adders = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32,
              str: writer.add_string, list: writer.add_array}  # fmt: skip
    for key, value in metadata.items():
        if value is not None:
            adders[type(value)](key, value)


def _metadata(tiny: Tiny, folder: Path, config: dict[str, Any]) -> dict[str, object]:
    """Return what the converter writes for that config.json and tokenizer."""
    found = {
        "embedding_length": "hidden_size d_model",
        "block_count": "num_hidden_layers n_layers",
        "attention.head_count": "num_attention_heads n_heads",
        "attention.head_count_kv": "num_key_value_heads n_kv_heads",
        "attention.key_length": "head_dim",
        "attention.layer_norm_rms_epsilon": "rms_norm_eps",
        "rope.freq_base": "rope_theta",
        "feed_forward_length": "intermediate_size mlp_hidden_size",
        "context_length": "max_position_embeddings max_sequence_length",
        "expert_count": "num_experts",
        "expert_used_count": "num_experts_per_tok",
        "expert_feed_forward_length": "moe_intermediate_size",
    }
    own = {key: next((config[name] for name in names.split() if name in config), None)
           for key, names in found.items()}  # fmt: skip
    own |= {"attention.causal": False, "vocab_size": VOCABULARY}
    shifts = {"diffusion.shift_logits": False} if tiny.name.startswith("llada") else {}
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    names = {i: name for name, i in tokenizer["model"]["vocab"].items()}
    types = dict.fromkeys(names, 1)
    for token in tokenizer["added_tokens"]:
        names[token["id"]], types[token["id"]] = token["content"], 3 if token["special"] else 4
    merges = [" ".join(pair) for pair in tokenizer["model"]["merges"]]
    return {
        **{f"{tiny.name}.{key}": value for key, value in own.items()},
        **shifts,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": tiny.pre,
        "tokenizer.ggml.tokens": [names.get(i, f"[PAD{i}]") for i in range(VOCABULARY)],
        "tokenizer.ggml.token_type": [types.get(i, 5) for i in range(VOCABULARY)],
        "tokenizer.ggml.merges": merges,
        **{f"tokenizer.ggml.{role}_token_id": config[f"{role}_token_id"]
           for role in ("bos", "eos", "mask")},
        "tokenizer.chat_template": TEMPLATE,
    }  # fmt: skip


def _interleaved(rows: np.ndarray, heads: int) -> np.ndarray:
    """Return the rows in the order of the converter: a row of a head's first half, one of its
    second.
    """
    halves = np.split(np.arange(len(rows) // heads), 2)
    order = np.stack(halves, axis=1).ravel()
    return rows[np.concatenate([head * len(order) + order for head in range(heads)])]


def packed(weight: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the weight as a type stores it, and the numbers that this stands for."""
    if kind == "F32":
        return weight, weight
    if kind in ("Q4_K", "Q6_K"):
        blocks, values = (_q4_k if kind == "Q4_K" else _q6_k)(weight.reshape(-1, 256))
        return blocks.reshape(len(weight), -1), values.reshape(weight.shape)
    blocks = gguf.quantize(weight, gguf.GGMLQuantizationType[kind]).view(np.uint8)
    return blocks, gguf.dequantize(blocks, gguf.GGMLQuantizationType[kind])


def _q4_k(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pack [N, 256] numbers: eight blocks of 32, each with a scale and an offset of 6 bits."""
    parts = weight.reshape(-1, 8, 32)
    offsets = np.maximum(0, -parts.min(-1))
    scales = (parts.max(-1) + offsets) / 15
    wholes = [(each.max(-1, keepdims=True) / 63).astype(np.float16) for each in (scales, offsets)]
    d, dmin = (whole.astype(np.float32) for whole in wholes)
    sc, m = np.rint(scales / d).astype(np.uint8), np.rint(offsets / dmin).astype(np.uint8)
    scale, offset = (d * sc)[..., None], (dmin * m)[..., None]
    q = np.clip(np.rint((parts + offset) / scale), 0, 15).astype(np.uint8)
    high = [each[:, :4] | each[:, 4:] >> 4 << 6 for each in (sc, m)]
    low = sc[:, 4:] & 15 | (m[:, 4:] & 15) << 4
    nibbles = (q[:, 0::2] | q[:, 1::2] << 4).reshape(-1, 128)
    blocks = [*(whole.view(np.uint8) for whole in wholes), *high, low, nibbles]
    return np.concatenate(blocks, -1), (scale * q - offset).astype(np.float32)


def _q6_k(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pack [N, 256] numbers: sixteen blocks of 16, each with a scale of 8 bits."""
    parts = weight.reshape(-1, 16, 16)
    scales = np.abs(parts).max(-1) / 31
    whole = (scales.max(-1, keepdims=True) / 127).astype(np.float16)
    sc = np.rint(scales / whole.astype(np.float32)).astype(np.int8)
    scale = (whole.astype(np.float32) * sc)[..., None]
    q = np.clip(np.rint(parts / scale), -32, 31).astype(np.int8)
    runs = (q + 32).astype(np.uint8).reshape(-1, 2, 4, 32)
    low = (runs[:, :, :2] & 15 | (runs[:, :, 2:] & 15) << 4).reshape(-1, 128)
    high = (runs >> 4 << (2 * np.arange(4, dtype=np.uint8))[:, None]).sum(2, dtype=np.uint8)
    blocks = [low, high.reshape(-1, 64), sc.view(np.uint8), whole.view(np.uint8)]
    return np.concatenate(blocks, -1), (scale * q).astype(np.float32)
