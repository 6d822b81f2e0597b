"""DiffusionGemma: uniform noise, in canvases that count from the end of a causal prompt."""

from dise_adapters.checkpoint.config import ConfigJson
from dise_adapters.families.blocks import Varying
from dise_adapters.families.family import ConfigFields, Family
from dise_core import Canvases

SIZES = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "vocab_size", "max_position_embeddings",
    "sliding_window", "num_experts", "top_k_experts", "moe_intermediate_size",
)  # fmt: skip

OTHERS = (
    "layer_types", "rope_parameters", "per_layer_config", "global_head_dim",
    "num_global_key_value_heads", "eos_token_id", "pad_token_id",
)  # fmt: skip
"""The fields that transformers' class reads itself, with defaults of its own."""

COVERED = {
    "hidden_activation": ("gelu_pytorch_tanh",),
    "attention_bias": (False, None),
    "use_bidirectional_attention": ("vision", None),
}


def diffusion_gemma_settings(config: ConfigJson) -> ConfigFields:
    """Return the configuration of the text model alone. Raises as Family.translate says."""
    fields = config.fields.get("text_config")
    if not isinstance(fields, dict):
        raise config.error("it has no text_config")
    text = ConfigJson({"final_logit_softcapping": 30.0, **fields}, config.where)
    text.refuse_variants(COVERED)
    settings: ConfigFields = {name: text.whole(name) for name in SIZES}
    if settings["top_k_experts"] > settings["num_experts"]:
        raise text.error(f"top_k_experts={settings['top_k_experts']} of {settings['num_experts']}")
    numbers = {name: text.number(name) for name in ("rms_norm_eps", "final_logit_softcapping")}
    others = {name: fields[name] for name in OTHERS if fields.get(name) is not None}
    return settings | numbers | others | {"tie_word_embeddings": True}


DIFFUSION_GEMMA = Family(
    about="DiffusionGemma's text model, on transformers' layers.",
    example="google/diffusiongemma-26B-A4B-it",
    trained_on="finished texts too",
    sampler="--unmasking entropy-bound-renoise, its default",
    architectures=("DiffusionGemmaForBlockDiffusion",),
    model_types=("diffusion_gemma",),
    model_class="DiffusionGemmaForBlockDiffusion",
    covered={"tie_word_embeddings": (True, None)},
    translate=diffusion_gemma_settings,
    # The encoder's weights are the decoder's, but for what each layer multiplies its output by.
    key_mapping={
        r"^model\.encoder\.language_model\.(layers\.\d+\.)layer_(?=scalar$)": r"model.\1encoder_",
        r"^model\.(decoder|encoder\.language_model)\.": "model.",
    },
    unused=r"^model\.encoder\.(vision_tower|embed_vision)\.|^lm_head\.",
    end_tokens=("<turn|>", "<eos>"),
    attention=Varying(length_field="canvas_length", otherwise=Canvases(256)),
    noise="uniform",
    fill_token="<pad>",
)
