"""Auto-regressive models of transformers: no other model may be a judge.

A model that attends to later tokens would be sure of every token, and nothing would show
the error.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import PurePath

from dise_adapters.families.family import Family
from dise_adapters.families.names import architectures, remote_classes
from dise_core import Causal
from dise_core.records import JsonFields

ENCODERS = (
    "bert", "bert-generation", "big_bird", "camembert", "data2vec-text", "electra", "ernie",
    "megatron-bert", "rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer",
    "xlm-roberta", "xlm-roberta-xl", "xmod",
)  # fmt: skip
"""Model types that attend in both directions unless config.json sets is_decoder."""

HAS_CAUSAL_ROFORMER = tuple(map(int, version("transformers").split(".")[:2])) >= (5, 18)

BIDIRECTIONAL = ("cpmant", "xlm", "xlnet") + (() if HAS_CAUSAL_ROFORMER else ("roformer",))
"""Model types that in this transformers always attend in both directions."""

OTHER_NAMES = (
    "BertGenerationDecoder", "BertLMHeadModel", "CTRLLMHeadModel", "GPT2LMHeadModel",
    "OpenAIGPTLMHeadModel",
)  # fmt: skip
"""Auto-regressive classes of transformers whose names do not end in ForCausalLM."""

DIFFUSION_NAMES = {
    "diffcoder": ", which --model-args adapter=stable-diffcoder loads",
    "open[-_]d(coder|llm)": ", which --model-args adapter=open-dcoder loads",
    "diffullama": ", which --model-args adapter=diffullama,mask_token_id=ID loads",
    "diffugpt": ", which --model-args adapter=diffugpt,mask_token_id=ID loads",
    "bd3lm": "",
    "refusion": ", which no adapter here covers",
}
"""Patterns in the names of diffusion models that look auto-regressive, and advice."""


def is_autoregressive(fields: JsonFields, model: str) -> bool:  # noqa: ARG001
    """Return whether config.json names transformers' causal class of its model_type."""
    names = {name.casefold() for name in architectures(fields)}
    if names.isdisjoint(_own_classes()):
        return False  # without the import that follows, which takes seconds
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    causal = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(str(fields.get("model_type")), "")
    is_causal = causal.endswith("ForCausalLM") or causal in OTHER_NAMES
    return is_causal and causal.casefold() in names


def obstacle(fields: JsonFields, model: str) -> str | None:
    """Return why it is no auto-regressive model by its name or config.json; else None."""
    for source, name in _names(fields, model):
        for pattern, advice in DIFFUSION_NAMES.items():
            if re.search(pattern, name, re.IGNORECASE):
                return f"it is a diffusion model by {source} ({name}){advice}"
    foreign = [name for name in remote_classes(fields) if name.casefold() not in _own_classes()]
    if foreign:
        return (
            f"its auto_map asks for code of its own ({foreign[0]}), which is not run, and what "
            "that computes is not known"
        )
    model_type = str(fields.get("model_type"))
    if model_type in BIDIRECTIONAL:
        return f"a {model_type} model attends in both directions"
    if model_type in ENCODERS and fields.get("is_decoder") is not True:
        return f"a {model_type} model attends in both directions, as is_decoder is not true"
    for field, values in (("is_causal", (False,)), ("use_bidirectional_attention", (True, "all"))):
        if fields.get(field) in values:
            return f"it attends in both directions ({field} is {json.dumps(fields[field])})"
    return None


def _names(fields: JsonFields, model: str) -> Iterator[tuple[str, str]]:
    yield "its name", PurePath(model).name
    yield "the _name_or_path of config.json", str(fields.get("_name_or_path") or "")
    yield from (("its architectures", name) for name in architectures(fields))
    yield from (("its auto_map", name) for name in remote_classes(fields))


@cache
def _own_classes() -> frozenset[str]:
    import transformers

    return frozenset(name.casefold() for name in dir(transformers))


CAUSAL = Family(
    about="An auto-regressive model or a GGUF file of one: a judge.",
    trained_on="next tokens",
    model_class="AutoModelForCausalLM",
    answers_for="next",
    attention=Causal(),
    tokenizer_class="AutoTokenizer",
    takes_gguf=True,
    recognizes=is_autoregressive,
    obstacle=obstacle,
)
