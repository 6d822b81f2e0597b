"""What was taken out, and what to use instead, for whoever still asks for it."""

import re
from collections.abc import Mapping
from types import MappingProxyType

MODEL_ARGS = (
    "adapter", "attn_implementation", "block_size", "device_map", "judge_device", "judge_dtype",
    "mask_token_id", "max_batch_tokens", "max_cache_tokens", "max_memory", "prefix_cache_tokens",
    "revision", "tensor_parallel_size", "vllm_options",
)  # fmt: skip
"""Options of the command that are keys of --model-args now."""

POLICYS = ("eps", "logits_eos_inf", "confidence_eos_eot_inf", "tempered_confidence")
"""Options that are settings of every unmasking policy now."""

STRUCK: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("length controller", "smart-crop"): "take 'rho-eos', which solves as many problems in "
        "fewer passes.",
        **dict.fromkeys(
            (("option", name) for name in ("logits", "logits_settings", "logits_setting")),
            "take logit_bias or a constraint, which say what is written.",
        ),
        ("scorer", "mc-llada"): "take 'mc' with the setting estimator=llada.",
        ("scorer", "mc-dream"): "take 'mc' with the setting estimator=dream.",
        ("scorer", "combined"): "take 'dise+written', the plain sum, which no fit passed.",
        **dict.fromkeys(
            (("scorer", name) for name in ("duel", "replay")),
            "install examples/likelihoods, which registers it.",
        ),
        ("selector", "first-block"): "take 'first-blocks-1', which is the same.",
        ("selector", "prompt"): "take 'prompt-last-K' with a large K, which is the same.",
        ("selector", "response-first-K"): "take 'first-K', which passes over end tokens, or "
        "'first-blocks-K'.",
        ("unmasking policy", "factor"): "take 'threshold', which solves more problems in half a "
        "pass more.",
        ("unmasking policy", "llada2"): "take 'low-confidence-dynamic' with the setting "
        "threshold=0.95, which is the same.",
        **{
            ("option", name): "it is a setting of the unmasking policy: "
            f"unmasking_settings={{{name!r}: VALUE}}, or --unmasking-setting {name}=VALUE."
            for name in POLICYS
        },
        **{("command option", name): f"write --model-args {name}=VALUE." for name in MODEL_ARGS},
        **dict.fromkeys(
            (
                ("command option", name)
                for name in ("allowed_token_ids", "cache_salt", "forbidden_token_ids", "logit_bias")
            ),
            "Python and HTTP have it.",
        ),
        ("command option", "samples"): "write --scorer-setting num_samples=SAMPLES.",
        ("option", "early_exit"): "take length='until-end', which stops after the block that ends "
        "the answer.",
        ("option", "orders"): "options are shown in one order, so leave it out.",
        ("path", "/v1/systemone"): "POST /v1/decisions takes the same questions.",
        ("reading", "each-negated"): 'use "each", which asks of each option once.',
        ("verb", "analyze"): "its analyses are experiments of dise eval, as dise eval coherence.",
        ("verb", "recipes"): "dise eval --recipe list shows the recipes.",
        ("option", "header_timeout"): "put a proxy in front of the server, which bounds how long "
        "a request's head may take.",
        ("option", "shards"): "use --shard i/n, once for each i, or --ray, or give many files.",
        ("option", "gpus_per_worker"): "each worker has a GPU where Ray has any.",
        (
            "option",
            "cpus_per_worker",
        ): "each worker has a core; OMP_NUM_THREADS gives it more threads.",
        ("verb", "check"): "give --resume, which makes the rows that are missing and counts them.",
    }
)
"""By kind and name, the rest of a sentence: "NAME was taken out: ...". A kind is the title
of a kind of plugins, "option" for an option of requests or of loading, "command option"
for one that Python keeps, an option's name for one of its values, "path" for one of HTTP, or
"verb". Why is in docs/results.md, "Tried and struck".
"""


def struck(kind: str, name: str) -> str | None:
    """Return the sentence about a name that was taken out, None for any other. A number at
    its end stands for K.
    """
    instead = STRUCK.get((kind, name)) or STRUCK.get((kind, re.sub(r"-\d{1,9}$", "-K", name)))
    return None if instead is None else f"{kind} {name!r} was taken out: {instead}"


UNSET: Mapping[str, object] = MappingProxyType(
    {
        **dict.fromkeys(("early_exit", "eps", "logits", "tempered_confidence")),
        **{"logits_eos_inf": False, "confidence_eos_eot_inf": False, "logits_settings": {}},
        "orders": 1,
    }
)
"""The defaults of options of requests that were taken out, which older runs have noted."""


def is_unset(name: str, value: object) -> bool:
    """Return whether an option was taken out, and the value was its default."""
    return name in UNSET and value == UNSET[name]
