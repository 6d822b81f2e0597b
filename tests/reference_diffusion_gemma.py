"""DiffusionGemma as transformers computes it: tiny random checkpoints, encoder and decoder."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    DiffusionGemmaConfig,
    DiffusionGemmaForBlockDiffusion,
    PreTrainedTokenizerFast,
)
from transformers.cache_utils import DynamicCache
from transformers.models.diffusion_gemma.configuration_diffusion_gemma import (
    DiffusionGemmaTextConfig,
)
from transformers.models.gemma4.configuration_gemma4 import Gemma4VisionConfig

from dise_core import Floats, Ids

CANVAS, WINDOW = 32, 64
SPECIAL = ("<pad>", "<eos>", "<bos>", "<|turn>", "<turn|>", "<|channel>", "<channel|>", "<|image|>")
PAD, END, TURN_END, VOCAB_SIZE = 0, 1, 4, 264
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|turn>"
    "{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content }}<turn|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|turn>model\n"
    "{% if enable_thinking is defined and enable_thinking %}<|channel>thought\n{% endif %}"
    "{% endif %}"
)


def write(folder: Path, seed: int = 0, sharpness: float = 1.0, **sizes: Any) -> Path:
    """Write a tiny checkpoint, as save_pretrained does, with its vision model. The scalars of
    encoder and decoder differ, and between layers. sharpness: of its predictions.
    """
    torch.manual_seed(seed)
    model = DiffusionGemmaForBlockDiffusion(_config(**sizes))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name or name.endswith("scale"):
                weight.add_(torch.randn_like(weight) * 0.1)
        for name, scalar in model.named_buffers():
            if "layer_scalar" in name:
                scalar.fill_(0.7 + 0.3 * torch.rand(()).item())
        model.model.decoder.norm.weight.mul_(sharpness)
    model.save_pretrained(folder)
    _write_tokenizer(folder)
    return folder


def write_headers(folder: Path) -> Path:
    """Write a checkpoint of the published size, of which only the header takes room."""
    config = _config(
        vocab_size=262144, hidden_size=2816, intermediate_size=2112, num_hidden_layers=30,
        num_attention_heads=16, num_key_value_heads=8, head_dim=256, global_head_dim=512,
        num_global_key_value_heads=2, sliding_window=1024, layer_types=None, num_experts=128,
        top_k_experts=8, moe_intermediate_size=704,
    )  # fmt: skip
    with torch.device("meta"):
        state = DiffusionGemmaForBlockDiffusion(config).state_dict()
    header, size = dict[str, object](), 0
    for name, weight in state.items():
        is_tied = name.startswith("model.encoder.language_model.") and "scalar" not in name
        if not is_tied and name != "lm_head.weight":
            span = [size, size := size + 2 * weight.numel()]
            header[name] = {"dtype": "BF16", "shape": [*weight.shape], "data_offsets": span}
    text = json.dumps(header).encode()
    path = folder / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    os.truncate(path, 8 + len(text) + size)
    config.architectures = ["DiffusionGemmaForBlockDiffusion"]
    config.save_pretrained(folder)
    _write_tokenizer(folder)
    return folder


def _vocabulary() -> dict[str, int]:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    return {token: number for number, token in enumerate((*SPECIAL, *alphabet))}


def _write_tokenizer(folder: Path) -> None:
    tokenizer = Tokenizer(models.BPE(vocab=_vocabulary(), merges=[], unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([*SPECIAL])
    names = {f"{name[1:4]}_token": name for name in ("<pad>", "<eos>", "<bos>")}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=TEMPLATE, **names)
    fast.save_pretrained(folder)


def _config(**sizes: Any) -> DiffusionGemmaConfig:
    text: dict[str, Any] = {
        "vocab_size": len(_vocabulary()), "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 32, "global_head_dim": 64, "num_global_key_value_heads": 1,
        "max_position_embeddings": 1024, "sliding_window": WINDOW, "num_experts": 4,
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"], "top_k_experts": 2,
        "moe_intermediate_size": 32, "use_bidirectional_attention": "vision",
        "initializer_range": 0.3, **sizes,
    }  # fmt: skip
    vision = {
        "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "head_dim": 8,
        "num_attention_heads": 2, "num_key_value_heads": 2, "patch_size": 4,
        "position_embedding_size": 64, "pooling_kernel_size": 2,
    }  # fmt: skip
    image = dict.fromkeys(("image_token_id", "boi_token_id", "eoi_token_id"), 7)
    return DiffusionGemmaConfig(
        text_config=DiffusionGemmaTextConfig(**text),
        vision_config=Gemma4VisionConfig(**vision),
        canvas_length=CANVAS,
        **image,
    )


class Reference:
    """A checkpoint in transformers' own class."""

    def __init__(
        self, folder: Path, dtype: torch.dtype = torch.float32, device: str = "cpu"
    ) -> None:
        model = DiffusionGemmaForBlockDiffusion.from_pretrained(
            folder, dtype=dtype, attn_implementation="eager"
        )
        self.model = model.eval().to(device)

    @torch.no_grad()
    def logprobs(self, text: Ids, start: int, earlier: Floats | None = None) -> Floats:
        """Return log p of each token [N - start, V] of a text of whole canvases from `start`
        on, each decoded after the encoder has read the text before it. earlier: the
        tempered logits of a step before, [C, V].
        """
        signal = (
            None
            if earlier is None
            else torch.from_numpy(earlier)[None].float().to(self.model.device)
        )
        rows, length = [], self.model.config.canvas_length
        for first in range(start, len(text), length):
            cache = DynamicCache(config=self.model.config.get_text_config(decoder=True))
            ids = torch.from_numpy(text)[None].to(self.model.device)
            self.model.model.encoder(input_ids=ids[:, :first], past_key_values=cache)
            canvas = ids[:, first : first + length]
            logits = self.model(
                decoder_input_ids=canvas, past_key_values=cache, self_conditioning_logits=signal
            ).logits[0]
            rows.append(logits.double().log_softmax(-1).cpu().numpy())
        return np.concatenate(rows)
