"""Tiny auto-regressive models with random weights. Only tests use them."""

from pathlib import Path

import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
)

from tests.reference_llada import write_tokenizer

SHAPE = {"vocab_size": 50, "eos_token_id": 48, "bos_token_id": 40}


def llama(**changes: int) -> PreTrainedModel:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 48, **changes}
    return LlamaForCausalLM(LlamaConfig(**SHAPE, **sizes))


def gpt2() -> PreTrainedModel:
    return GPT2LMHeadModel(GPT2Config(**SHAPE, n_embd=32, n_layer=2, n_head=2, n_positions=64))


def gemma2() -> PreTrainedModel:
    """A model that caps its logits after the head."""
    config = Gemma2Config(
        **SHAPE, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16,
        intermediate_size=48, final_logit_softcapping=1.0,
    )  # fmt: skip
    return Gemma2ForCausalLM(config)


def checkpoint(folder: Path, model: PreTrainedModel) -> str:
    torch.manual_seed(0)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    model.save_pretrained(folder)
    write_tokenizer(folder, 50)
    return str(folder)
