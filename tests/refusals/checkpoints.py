"""Checkpoints: what a config.json may not say is told by its field and value."""

from __future__ import annotations

from typing import Any

import pytest

from dise_core import LLM
from dise_core.errors import CheckpointError
from tests.checkpoints import write
from tests.refusals.table import Refusal, Row, Table

OPTIONS: dict[str, dict[str, Any]] = {"diffugpt": {"adapter": "diffugpt", "mask_token_id": 67}}
"""What a kind needs that does not say what it is."""

ROTARY = [1], {"rope_type": "yarn", "rope_theta": 1.0}, {"type": "linear"}, {"factor": 2.0}

FORMATS: list[Row] = [
    (("a2d-qwen2", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}), "rope_scaling",
     "rope_scaling={'rope_type': 'yarn', 'factor': 4.0}"),
    (("a2d-qwen2", {"use_sliding_window": True}), "use_sliding_window", "use_sliding_window=True"),
    (("fast-dllm-v2", {"layer_types": ["full_attention", "sliding_attention"]}), "layer_types", ""),
    (("fast-dllm-v2", {"use_relay": True}), "use_relay", "use_relay=True"),
    (("sdar", {"attention_bias": True}), "attention_bias", "attention_bias=True"),
    (("sdar", {"hidden_act": "gelu"}), "hidden_act", "'gelu'"),
    (("sdar", {"use_regular_causal": True}), "use_regular_causal", "use_regular_causal=True"),
    (("sdar-moe", {"mlp_only_layers": [0]}), "mlp_only_layers", ""),
    (("sdar-moe", {"decoder_sparse_step": 2}), "decoder_sparse_step", "decoder_sparse_step=2"),
    (("sdar-moe", {"num_experts_per_tok": 9}), "num_experts_per_tok", "num_experts_per_tok=9"),
    (("stable-diffcoder", {"mlp_bias": True}), "mlp_bias", "mlp_bias=True"),
    (("illada", {"layer_norm_eps": 1e-5}), "layer_norm_eps", "layer_norm_eps=1e-05"),
    (("llada-moe", {"moe_layer_freq": [0, 1]}), "moe_layer_freq", ""),
    (("llada-moe", {"shared_expert_intermediate_size": 20}), "shared_expert_intermediate_size",
     "shared_expert_intermediate_size=20"),
    (("llada-moe", {"norm_topk_prob": True}), "norm_topk_prob", "norm_topk_prob=True"),
    (("llada-moe", {"moe_router_score_function": "sigmoid"}), "moe_router_score_function",
     "'sigmoid'"),
    (("llada-moe", {"router_num_group": 2}), "router_num_group", "router_num_group=2"),
    (("llada-moe", {"qk_layernorm": False}), "qk_layernorm", "qk_layernorm=False"),
    (("rnd1", {"norm_topk_prob": False}), "norm_topk_prob", "norm_topk_prob=False"),
    (("llada2", {"expert_capacity": 64}), "expert_capacity", "expert_capacity=64"),
    (("llada2", {"score_function": "softmax"}), "score_function", "'softmax'"),
    (("llada2", {"moe_router_enable_expert_bias": False}), "moe_router_enable_expert_bias",
     "moe_router_enable_expert_bias=False"),
    (("llada2", {"norm_head": True}), "norm_head", "norm_head=True"),
    (("llada2", {"use_qkv_bias": True}), "use_qkv_bias", "use_qkv_bias=True"),
    (("llada2", {"n_group": 5}), "n_group", "n_group=5"),
    (("llada2", {"num_experts_per_tok": 7}), "num_experts_per_tok", "num_experts_per_tok=7"),
    (("llada2", {"partial_rotary_factor": 0.25}), "partial_rotary_factor",
     "partial_rotary_factor=0.25"),
    (("llada2", {"rotary_dim": 20}), "rotary_dim", "rotary_dim=20"),
    (("llada2", {"num_shared_experts": 0}), "num_shared_experts", "num_shared_experts=0"),
    (("llada2", {"num_nextn_predict_layers": 1}), "num_nextn_predict_layers",
     "num_nextn_predict_layers=1"),
    *((("fast-dllm-v2", {"bd_size": size}), "bd_size", "") for size in (0, "4", True, 10**9)),
    (("llada", {"alibi": True}), "alibi", "config.json: alibi=True is not covered"),
    (("llada", {"include_bias": True}), "include_bias",
     "config.json: include_bias=True is not covered"),
    (("llada", {"scale_logits": True}), "scale_logits",
     "config.json: scale_logits=True is not covered"),
    (("llada", {"attention_layer_norm": True}), "attention_layer_norm",
     "config.json: attention_layer_norm=True is not covered"),
    (("llada", {"block_type": "x"}), "block_type", "config.json: block_type='x' is not covered"),
    (("qwen3", {"vocab_size": 64}), "=mask token",
     "64 rows of logits, so 64 cannot be its mask token"),
    (("diffugpt", {"activation_function": "relu"}), "activation_function",
     "activation_function='relu' is not covered"),
    *((("qwen3", {field: value}), field, f"{field}= … is not covered, only unscaled ones")
      for field in ("rope_parameters", "rope_scaling") for value in ROTARY),
]  # fmt: skip


def refused(given: tuple[str, dict[str, object]], request: pytest.FixtureRequest) -> Refusal:
    kind, fields = given
    folder = write(kind, request.getfixturevalue("tmp_path"), **fields)
    with pytest.raises(CheckpointError) as caught:
        LLM(str(folder), **OPTIONS.get(kind, {}))
    return Refusal(str(caught.value), None)


TABLES = [Table("checkpoint", refused, FORMATS)]
