"""Models of published sizes on the pretended GPU. Of their checkpoints only the headers are
written; all else is done as for any other.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from unittest import mock
from zlib import crc32

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models
from torch import Tensor

from dise_adapters.checkpoint import weights
from dise_adapters.families import dream, llada, llada2, sdar
from dise_adapters.local.loading import loader
from dise_adapters.local.loading.fits import RESERVE
from dise_core import LLM, SamplingParams
from tests.pretended_gpu import GPU, PretendedGPU

QWEN: dict[str, Any] = {
    "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 1e6, "attention_bias": False,
    "use_sliding_window": False, "tie_word_embeddings": False,
}  # fmt: skip

MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "LLaDA-8B": (llada.LLADA, {
        "architectures": ["LLaDAModelLM"], "model_type": "llada", "d_model": 4096, "n_layers": 32,
        "n_heads": 32, "mlp_hidden_size": 12288, "vocab_size": 126464, "embedding_size": 126464,
        "max_sequence_length": 4096, "rope_theta": 5e5, "rms_norm_eps": 1e-5,
        "mask_token_id": 126336, "eos_token_id": 126081,
    }),
    "Dream-7B": (dream.DREAM, QWEN | {
        "architectures": ["DreamModel"], "model_type": "Dream", "hidden_size": 3584,
        "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
        "num_key_value_heads": 4, "vocab_size": 152064, "max_position_embeddings": 131072,
        "mask_token_id": 151666, "eos_token_id": 151643,
    }),
    "SDAR-8B-b32": (sdar.SDAR, QWEN | {
        "architectures": ["SDARForCausalLM"], "model_type": "sdar", "hidden_size": 4096,
        "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "block_size": 32,
        "max_position_embeddings": 32768, "mask_token_id": 151669, "eos_token_id": 151643,
    }),
    "LLaDA2.0-mini": (llada2.LLADA2, {
        "architectures": ["LLaDA2MoeModelLM"], "model_type": "llada2_moe", "hidden_size": 2048,
        "intermediate_size": 5120, "num_hidden_layers": 20, "num_attention_heads": 16,
        "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 157184, "rope_theta": 6e5,
        "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "hidden_act": "silu",
        "partial_rotary_factor": 0.5, "use_bias": False, "use_qkv_bias": False,
        "use_qk_norm": True, "tie_word_embeddings": False, "num_experts": 256,
        "num_experts_per_tok": 8, "num_shared_experts": 1, "moe_intermediate_size": 512,
        "n_group": 8, "topk_group": 4, "norm_topk_prob": True, "routed_scaling_factor": 2.5,
        "first_k_dense_replace": 1, "score_function": "sigmoid", "router_dtype": "fp32",
        "moe_router_enable_expert_bias": True, "mask_token_id": 156895, "eos_token_id": 156892,
    }),
}  # fmt: skip
"""The family and the config.json of each, as published."""

WORDS = 900
"""Of the tokenizer, that random texts consist of."""

LAYERS = ("n_layers", "num_hidden_layers")


def write(folder: Path, name: str, **changes: int) -> Path:
    """Write a model's checkpoint without weights. changes: of config.json's fields; `layers`."""
    family, fields = MODELS[name]
    folder.mkdir(parents=True, exist_ok=True)
    layers = changes.pop("layers", None)
    fields = fields | changes | {key: layers for key in LAYERS if layers and key in fields}
    settings = family.settings(fields, str(folder))
    model_class = getattr(transformers, family.model_class)
    with torch.device("meta"):
        state = model_class(model_class.config_class(**settings)).state_dict()
    header, size = dict[str, object](), 0
    for key, tensor in state.items():
        span = [size, size := size + 2 * tensor.numel()]
        header[key] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": span}
    text = json.dumps(header).encode()
    path = folder / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    os.truncate(path, 8 + len(text) + size)
    words = models.WordLevel({f"t{i}": i for i in range(1000)}, unk_token="t0")
    Tokenizer(words).save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps(fields))
    return folder


class Header:
    """A file of safetensors whose weights are on the pretended GPU."""

    def __init__(self, path: Path, framework: str, device: str = "") -> None:
        with path.open("rb") as file:
            [size] = struct.unpack("<Q", file.read(8))
            self._parts = json.loads(file.read(size))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def keys(self) -> list[str]:
        return list(self._parts)

    offset_keys = keys

    def get_slice(self, name: str) -> Weight:
        return Weight(self._parts[name]["shape"])

    def get_tensor(self, name: str) -> Tensor:
        return self.get_slice(name)[...]


def drawn(source: torch.device) -> type[Header]:
    """Return a file whose weights are drawn on a device when they are read, alike each time."""

    class Drawn(Header):
        def __init__(self, path: Path, framework: str, device: str = "cpu") -> None:
            super().__init__(path, framework)
            self._place = device

        def get_tensor(self, name: str) -> Tensor:
            shape, generator = self._parts[name]["shape"], torch.Generator(source)
            if len(shape) == 1:
                return torch.ones(shape, dtype=torch.bfloat16, device=self._place)
            generator.manual_seed(crc32(name.encode()))
            numbers = torch.randn(shape, generator=generator, device=source, dtype=torch.bfloat16)
            return numbers.mul_(shape[-1] ** -0.5).to(self._place)

    return Drawn


class Weight:
    def __init__(self, shape: list[int]) -> None:
        self._shape = shape

    def get_shape(self) -> list[int]:
        return self._shape

    def get_dtype(self) -> str:
        return "BF16"

    def __getitem__(self, _: object) -> Tensor:
        return torch.empty(self._shape, dtype=torch.bfloat16, device=GPU)


@contextmanager
def loaded(folder: Path, **options: Any) -> Iterator[tuple[LLM, PretendedGPU, int]]:
    """Yield a checkpoint's model on the pretended GPU, which is there as long, and the bytes that
    are planned for a pass beside the weights.
    """
    planned = list[int]()

    def plan(*args: Any) -> int:
        planned.append(pass_bytes(*args))
        return planned[-1]

    pass_bytes = loader.pass_bytes
    with (
        mock.patch.object(weights, "safe_open", Header),
        mock.patch.object(loader, "pass_bytes", plan),
        PretendedGPU() as gpu,
    ):
        llm = LLM(str(folder), device=str(GPU), dtype="bfloat16", **options)
        gpu.watch(llm.predictor)
        yield llm, gpu, planned[-1] - RESERVE


def generate(llm: LLM, lengths: Sequence[int], cache: str, tokens: int) -> None:
    """Write tokens after prompts of these lengths."""
    draw = np.random.default_rng(1)
    prompts = [draw.integers(0, WORDS, length).tolist() for length in lengths]
    blocks: dict[str, Any] = (
        {} if llm.predictor.info.block_length else {"block_length": min(tokens, 32)}
    )
    options = {"max_tokens": tokens, "cache": cache, "seed": 0, "logprobs": None, **blocks}
    llm.generate(prompts, SamplingParams(**options))
