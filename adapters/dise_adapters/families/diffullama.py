"""DiffuLLaMA and DiffuGPT: Llama and GPT-2 with full attention. Row i - 1 of the logits
predicts token i.

Their config.json are those of auto-regressive models, so they load only where the user
names the adapter, and with the id of the mask, which their files may not give.
"""

from dataclasses import replace

from dise_adapters.checkpoint.config import ConfigJson
from dise_adapters.families.backbones import llama_settings
from dise_adapters.families.family import ConfigFields, Family


def gpt2_settings(config: ConfigJson) -> ConfigFields:
    """Return the configuration as a GPT-2's. Raises as Family.translate says."""
    sizes = {name: config.whole(name) for name in ("n_embd", "n_layer", "n_head", "vocab_size")}
    if sizes["n_embd"] % sizes["n_head"]:
        raise config.error(f"{sizes['n_head']} heads do not divide n_embd={sizes['n_embd']}")
    return {
        **sizes,
        "max_position_embeddings": config.whole("n_positions"),
        "layer_norm_epsilon": config.number("layer_norm_epsilon"),
        "activation_function": "gelu_new",
        "tie_word_embeddings": True,
    }


DIFFULLAMA = Family(
    about="DiffuLLaMA, on Llama, where `adapter` names it.",
    example="diffusionfamily/diffullama",
    model_class="LlamaForCausalLM",
    translate=llama_settings,
    answers_for="next",
)

DIFFUGPT = replace(
    DIFFULLAMA,
    about="DiffuGPT, on GPT-2, where `adapter` names it.",
    example="diffusionfamily/diffugpt-m",
    model_class="GPT2LMHeadModel",
    covered={
        "activation_function": ("gelu_new",),
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "reorder_and_upcast_attn": (False,),
        "n_inner": (None,),
        "tie_word_embeddings": (True,),
    },
    translate=gpt2_settings,
)
