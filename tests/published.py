"""The published formats of diffusion models at a tiny size. Only tests use it."""

from __future__ import annotations

from dataclasses import replace

from tests.reference_backbone import LLADA2_NAMES, Shape
from tests.tiny_format import Published

QWEN_TOKENS = {60: "<|endoftext|>", 62: "<|im_end|>"}


def auto_map(module: str, name: str) -> dict[str, str]:
    """Return an auto_map that asks for the checkpoint's own code."""
    return {"AutoModel": f"{module}.{name}", "AutoModelForCausalLM": f"{module}.{name}"}


QWEN3 = {"attention_bias": False, "head_dim": 20, "max_window_layers": 2, "sliding_window": None,
         "use_sliding_window": False, "eos_token_id": 62, "bos_token_id": 60}  # fmt: skip
QWEN2 = {"max_window_layers": 2, "sliding_window": 64, "use_sliding_window": False,
         "eos_token_id": 62, "bos_token_id": 60}  # fmt: skip
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 20,
           "decoder_sparse_step": 1, "mlp_only_layers": [], "output_router_logits": False,
           "router_aux_loss_coef": 0.001}  # fmt: skip

NORMED = {"head_dim": 20, "is_normed": True, "eps": 1e-6, "theta": 1e6}

A2D_QWEN3 = Published(
    family="a2d-qwen3",
    called="Qwen3-0.6B-diffusion-bd3lm-v0.1",
    shape=Shape(**NORMED, is_tied=True, block=32),
    config={**QWEN3, "architectures": ["A2DQwen3LMHeadModel"], "model_type": "a2d-qwen3"},
    tokens={**QWEN_TOKENS, 64: "<|mask|>"},
    mask_id=64,
)
A2D_QWEN2 = Published(
    family="a2d-qwen2",
    called="Qwen2.5-Coder-0.5B-Instruct-diffusion-mdlm-v0.1",
    shape=Shape(has_bias=True, is_tied=True),
    config={**QWEN2, "architectures": ["A2DQwen2LMHeadModel"], "model_type": "a2d-qwen2"},
    tokens={**QWEN_TOKENS, 64: "<|mask|>"},
    mask_id=64,
)
SDAR = Published(
    family="sdar",
    called="SDAR-1.7B-Chat",
    shape=Shape(**NORMED, block=4),
    config={
        **QWEN3,
        "architectures": ["SDARForCausalLM"],
        "auto_map": auto_map("modeling_sdar", "SDARForCausalLM"),
        "model_type": "sdar",
        "eos_token_id": [62, 60],
        "fuse_cross_entropy": True,
    },
    tokens={**QWEN_TOKENS, 63: "<|MASK|>"},
    mask_id=63,
)
SDAR_MOE = replace(
    SDAR,
    family="sdar-moe",
    called="SDAR-30B-A3B-Chat",
    shape=Shape(**NORMED, block=4, router="normed softmax", per_token=3),
    config={
        **QWEN3,
        **EXPERTS,
        "architectures": ["SDARMoeForCausalLM"],
        "model_type": "sdar_moe",
        "norm_topk_prob": True,
    },
)
FAST_DLLM = Published(
    family="fast-dllm-v2",
    called="Fast_dLLM_v2_1.5B",
    shape=Shape(has_bias=True, is_tied=True, is_shifted=True, block=16),
    config={
        **QWEN2,
        "architectures": ["Fast_dLLM_QwenForCausalLM"],
        "model_type": "Fast_dLLM_Qwen",
        "auto_map": auto_map("modeling", "Fast_dLLM_QwenForCausalLM"),
        "layer_types": ["full_attention"] * 2,
        "bd_size": 16,
    },
    tokens={**QWEN_TOKENS, 65: "|<MASK>|"},
    mask_id=65,
)
DIFFCODER = Published(
    family="stable-diffcoder",
    shape=Shape(block=4, theta=5e5, eps=1e-5),
    config={
        "architectures": ["StableDiffcoderForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "mlp_bias": False,
        "pretraining_tp": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
    },
    tokens={1: "<s>", 2: "</s>", 5: "<[MASK_TOKEN]>"},
    mask_token="<[MASK_TOKEN]>",
    mask_id=5,
    eos_id=2,
)
OLD_DIFFCODER = replace(
    DIFFCODER,
    config={
        **DIFFCODER.config,
        "architectures": ["LlamaForCausalLM"],
        "auto_map": auto_map("modeling_seed_diffcoder", "SeedDiffcoderForCausalLM"),
    },
    tokens={},
    mask_token=None,
)
ILLADA = Published(
    family="illada",
    shape=Shape(is_tied=True, eps=1e-5),
    config={
        "architectures": ["ILLaDAForCausalLM"],
        "model_type": "illada",
        "attention_bias": False,
        "mlp_bias": False,
        "layer_norm_eps": None,
        "resid_pdrop": 0.0,
        "bos_token_id": 0,
        "eos_token_id": 2,
    },
    tokens={2: "</s>", 5: "<[MASK]>"},
    mask_id=5,
    eos_id=2,
)
OPEN_DCODER = Published(
    family="open-dcoder",
    called="open-dcoder-0.5B",
    shape=Shape(has_bias=True, is_tied=True, is_shifted=True),
    config={**QWEN2, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"},
    tokens={**QWEN_TOKENS, 66: "[MASK]"},
    mask_token="[MASK]",
    mask_id=66,
)
LLADA_MOE = Published(
    family="llada-moe",
    shape=Shape(is_normed=True, kv_heads=4, theta=5e4, eps=1e-5, router="softmax", per_token=3),
    config={
        "architectures": ["LLaDAMoEModelLM"], "model_type": "llada", "attention_bias": False,
        "clip_qkv": None, "dense_intermediate_size": 192, "expert_intermediate_size": 20,
        "moe_layer_freq": [1, 1], "moe_router_enable_expert_bias": False,
        "moe_router_score_function": "softmax", "norm_topk_prob": None, "num_experts": 8,
        "num_experts_per_tok": 3, "pad_token_id": 60, "partial_rotary_factor": 1,
        "qk_layernorm": True, "routed_scaling_factor": 1, "router_num_group": None,
        "router_topk_group": None, "shared_expert_intermediate_size": None,
    },
    tokens={60: "<|endoftext|>", 63: "<|mask|>", 61: "<|role_end|>"},
    mask_id=63,
    eos_id=60,
)  # fmt: skip
RND1 = Published(
    family="rnd1",
    shape=Shape(**NORMED, is_shifted=True, router="normed softmax", per_token=3),
    config={
        **QWEN3,
        **EXPERTS,
        "architectures": ["RND1LM"],
        "auto_map": {"AutoModelForMaskedLM": "modeling_rnd.RND1LM"},
        "model_type": "rnd1",
        "norm_topk_prob": True,
        "is_causal": False,
        "mask_token_id": 69,
        "rope_scaling": False,
        "sliding_window": False,
        "num_diffusion_steps": 256,
    },
    tokens=QWEN_TOKENS,
    mask_id=69,
)
LLADA2 = Published(
    family="llada2",
    called="LLaDA2.1-mini",
    shape=Shape(
        layers=3, head_dim=20, is_normed=True, rotary=10, theta=6e5, block=32, router="sigmoid",
        experts=12, per_token=3, groups=4, chosen_groups=2, scaling=2.5, shared=1, dense=1,
        names=LLADA2_NAMES,
    ),
    config={
        "architectures": ["LLaDA2MoeModelLM"],
        "auto_map": auto_map("modeling_llada2_moe", "LLaDA2MoeModelLM"),
        "model_type": "llada2_moe", "first_k_dense_replace": 1, "head_dim": 20,
        "max_window_layers": 28, "moe_intermediate_size": 20, "n_group": 4, "topk_group": 2,
        "moe_router_enable_expert_bias": True, "norm_head": False, "norm_softmax": False,
        "norm_topk_prob": True, "num_experts": 12, "num_experts_per_tok": 3,
        "num_shared_experts": 1, "pad_token_id": 60, "partial_rotary_factor": 0.5,
        "rotary_dim": 10, "routed_scaling_factor": 2.5, "router_dtype": "fp32",
        "score_function": "sigmoid", "sliding_window": 4096, "use_bias": False,
        "use_qk_norm": True, "use_qkv_bias": False, "use_rmsnorm": True,
        "use_sliding_window": False,
    },
    tokens={60: "<|endoftext|>", 61: "<|role_end|>", 63: "<|mask|>"},
    mask_id=63,
    eos_id=60,
)  # fmt: skip

DIFFULLAMA = Published(
    family="diffullama",
    called="diffullama",
    shape=Shape(is_shifted=True),
    config={"architectures": ["LlamaForCausalLM"], "model_type": "llama", "eos_token_id": 2},
    tokens={2: "</s>"},
    mask_id=67,
    eos_id=2,
)
"""Told by its adapter alone, so it is none of PUBLISHED."""

PUBLISHED = {
    "a2d-qwen3 in blocks": A2D_QWEN3,
    "a2d-qwen2": A2D_QWEN2,
    "sdar": SDAR,
    "sdar-moe": SDAR_MOE,
    "fast-dllm-v2": FAST_DLLM,
    "stable-diffcoder": DIFFCODER,
    "stable-diffcoder of old": OLD_DIFFCODER,
    "illada": ILLADA,
    "open-dcoder": OPEN_DCODER,
    "llada-moe": LLADA_MOE,
    "rnd1": RND1,
    "llada2": LLADA2,
}
"""The published formats by name."""
