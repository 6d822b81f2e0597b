"""Train an embedded model with full attention on a CPU or GPU and write it as a LLaDA checkpoint.

python -m embedded_models.train countdown --output first

README.md has the commands that made the models that ship.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from . import training
from .chat import END, MASK
from .countdown import texts as countdown
from .training import Subject
from .words import texts as words

SUBJECTS: dict[str, Subject] = {"countdown": countdown, "word-problems": words}

CONFIG = {
    "architectures": ["LLaDAModelLM"],
    "model_type": "llada",
    "block_type": "llama",
    "activation_type": "silu",
    "layer_norm_type": "rms",
    "d_model": 192,
    "n_layers": 4,
    "n_heads": 6,
    "n_kv_heads": 6,
    "mlp_hidden_size": 512,
    "max_sequence_length": 512,
    "rope": True,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5,
    "weight_tying": False,
    "include_bias": False,
    "include_qkv_bias": False,
    "alibi": False,
    "attention_layer_norm": False,
    "scale_logits": False,
    "input_emb_norm": False,
    "torch_dtype": "bfloat16",
}

FINISHED_WEIGHT = 1.0
"""How much a token of a finished text counts beside the tokens of a masked one, whose expected
weight is 1.
"""

BLOCK_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ff_norm",
    "self_attn.q_proj": "q_proj",
    "self_attn.k_proj": "k_proj",
    "self_attn.v_proj": "v_proj",
    "self_attn.o_proj": "attn_out",
    "mlp.gate_proj": "ff_proj",
    "mlp.up_proj": "up_proj",
    "mlp.down_proj": "ff_out",
}
"""Llama's names within a layer and LLaDA's."""


def config_of(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return a checkpoint's config.json: CONFIG and what the tokenizer gives. The embedding has a
    multiple of 32 rows.
    """
    size, end = tokenizer.get_vocab_size(), tokenizer.token_to_id(END)
    return {
        **CONFIG,
        "vocab_size": size,
        "embedding_size": -(-size // 32) * 32,
        "mask_token_id": tokenizer.token_to_id(MASK),
        "eos_token_id": end,
        "pad_token_id": end,
    }


def build_model(num_rows: int) -> LlamaForCausalLM:
    """Return a bidirectional Llama of CONFIG's shape with random weights, with as many rows in its
    embedding.
    """
    config = LlamaConfig(
        hidden_size=CONFIG["d_model"],
        num_hidden_layers=CONFIG["n_layers"],
        num_attention_heads=CONFIG["n_heads"],
        num_key_value_heads=CONFIG["n_kv_heads"],
        intermediate_size=CONFIG["mlp_hidden_size"],
        vocab_size=num_rows,
        max_position_embeddings=CONFIG["max_sequence_length"],
        rope_parameters={"rope_type": "default", "rope_theta": CONFIG["rope_theta"]},
        rms_norm_eps=CONFIG["rms_norm_eps"],
        tie_word_embeddings=False,
        is_causal=False,
        use_cache=False,
    )
    return LlamaForCausalLM(config)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows to learn from: true ids [B, W], which of them are the response (with its end tokens),
    and what is shown.

    `shown` differs from `ids` in the last rows only, the finished texts with mistakes, whose number
    is `num_finished`.
    """

    ids: Tensor
    is_response: Tensor
    shown: Tensor
    num_finished: int


def draw_batch(random: Random, subject: Subject, size: int, num_finished: int) -> Batch:
    """Return a batch of `size` rows of one width. A text that is longer is drawn again, so that
    the longest appear in the wider rows only.
    """
    width = random.choices(list(subject.WIDTHS), subject.WIDTHS.values())[0]
    ids = torch.full((size, width), subject.TOKENIZER.token_to_id(END))
    is_response = torch.ones(size, width, dtype=torch.bool)
    shown = ids.clone()
    row = 0
    while row < size:
        prompt, response, wrong = subject.draw_text(random, mistaken=row >= size - num_finished)
        if len(prompt) + len(response) <= width:
            end = len(prompt) + len(response)
            ids[row, :end] = torch.tensor(prompt + response)
            shown[row, :end] = torch.tensor(prompt + wrong)
            is_response[row, : len(prompt)] = False
            row += 1
    return Batch(ids, is_response, shown, num_finished)


def loss_of(model: torch.nn.Module, batch: Batch, mask: int, device: str) -> Tensor:
    """Return LLaDA's fine-tuning loss: response tokens masked with probability t, cross-entropy
    weighted by 1/t.

    t is uniform; a batch takes evenly spaced values with one random offset, which lowers the
    variance. In the finished texts nothing is masked and each response token has the weight
    FINISHED_WEIGHT: what should stand here, given a text that may be wrong?
    """
    size, is_response = len(batch.ids), batch.is_response.to(device)
    is_finished = torch.arange(size, device=device)[:, None] >= size - batch.num_finished
    t = (
        ((torch.arange(size) + torch.rand(1)) / size)[torch.randperm(size), None]
        .clamp(min=1e-3)
        .to(device)
    )
    is_masked = (torch.rand(is_response.shape, device=device) < t) & is_response & ~is_finished
    weights = torch.where(is_finished, FINISHED_WEIGHT * is_response, is_masked / t)
    ids = batch.ids.to(device)
    with torch.autocast(device, dtype=torch.bfloat16):
        logits = model(torch.where(is_masked, mask, batch.shown.to(device))).logits
    losses = functional.cross_entropy(
        logits.float().flatten(0, 1), ids.flatten(), reduction="none"
    ).view_as(ids)
    return (losses * weights / is_response.sum(1, keepdim=True)).sum() / size


def named_weights(model: LlamaForCausalLM) -> dict[str, Tensor]:
    """Return the model's parameters by LLaDA's official names."""
    weights = {
        "model.transformer.wte.weight": model.model.embed_tokens.weight,
        "model.transformer.ln_f.weight": model.model.norm.weight,
        "model.transformer.ff_out.weight": model.lm_head.weight,
    }
    for index, layer in enumerate(model.model.layers):
        for ours, official in BLOCK_NAMES.items():
            weights[f"model.transformer.blocks.{index}.{official}.weight"] = layer.get_submodule(
                ours
            ).weight
    return weights


@torch.no_grad()
def load(model: LlamaForCausalLM, folder: Path) -> None:
    """Set the model's weights to those of a checkpoint."""
    stored = load_file(folder / "model.safetensors")
    for name, weight in named_weights(model).items():
        weight.copy_(stored[name])


def main() -> None:
    """Train a model with full attention; see training.run."""
    parser = training.arguments(__doc__)
    parser.add_argument("subject", choices=SUBJECTS, help="what it is to learn")
    parser.add_argument(
        "--start", type=Path, help="a checkpoint to go on from, instead of random weights"
    )
    parser.add_argument(
        "--finished",
        type=int,
        default=0,
        help="rows of a batch that are finished texts with mistakes",
    )
    args = parser.parse_args()
    subject, random = SUBJECTS[args.subject], Random(args.seed)
    config = config_of(subject.TOKENIZER)
    mask = subject.TOKENIZER.token_to_id(MASK)
    torch.manual_seed(args.seed)
    model = build_model(config["embedding_size"])
    if args.start is not None:
        load(model, args.start)

    def next_loss(compiled: torch.nn.Module) -> Tensor:
        batch = draw_batch(random, subject, args.batch_size, args.finished)
        return loss_of(compiled, batch, mask, args.device)

    def save() -> None:
        training.save(named_weights(model), config, subject.TOKENIZER, args.output)

    training.run(model, next_loss, save, args)


if __name__ == "__main__":
    main()
