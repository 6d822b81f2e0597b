"""Auto-regressive models of transformers: no other model may be a judge.

A model that attends to later tokens would be sure of every token, and nothing would show the error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import PurePath

from dise_adapters.families.family import Family, architectures, remote_classes
from dise_adapters.families.not_covered import not_covered
from dise_core.model import Causal
from dise_core.records import Fields

ENCODERS = frozenset(
    (
        "bert", "bert-generation", "big_bird", "camembert", "data2vec-text", "electra", "ernie",
        "megatron-bert", "rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer",
        "xlm-roberta", "xlm-roberta-xl", "xmod",
    )
)  # fmt: skip
"""Model types whose causal class in transformers attends in both directions unless config.json sets
is_decoder.
"""

HAS_CAUSAL_ROFORMER = tuple(map(int, version("transformers").split(".")[:2])) >= (5, 18)

BIDIRECTIONAL = frozenset(
    ("cpmant", "xlm", "xlnet") if HAS_CAUSAL_ROFORMER else ("cpmant", "roformer", "xlm", "xlnet")
)
"""Model types whose causal class in the installed transformers always attends in both directions.
"""

OTHER_NAMES = frozenset(
    (
        "BertGenerationDecoder", "BertLMHeadModel", "CTRLLMHeadModel", "GPT2LMHeadModel",
        "OpenAIGPTLMHeadModel",
    )
)  # fmt: skip
"""Auto-regressive classes of transformers whose names do not end in ForCausalLM."""

DIFFUSION_NAMES = {
    "diffcoder": ", which --adapter stable-diffcoder loads",
    "open-dcoder": ", which --adapter open-dcoder loads",
    "open_dcoder": ", which --adapter open-dcoder loads",
    "open-dllm": ", which --adapter open-dcoder loads",
    "open_dllm": ", which --adapter open-dcoder loads",
    "diffullama": ", which --adapter diffullama loads with the id of its mask (--mask-token-id)",
    "diffugpt": ", which --adapter diffugpt loads with the id of its mask (--mask-token-id)",
    "bd3lm": "",
    "refusion": ", which no adapter here covers",
}
"""Parts of the names of diffusion models whose config.json gives an auto-regressive model's type,
and what to do with them.
"""


def is_autoregressive(fields: Fields, model: str) -> bool:
    """Return whether config.json names transformers' own causal class for its model_type, without
    any `obstacle`.
    """
    if not _own_classes() & {name.casefold() for name in architectures(fields)}:
        return False  # without the import that follows, which takes seconds
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    causal = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(str(fields.get("model_type")), "")
    if not causal.endswith("ForCausalLM") and causal not in OTHER_NAMES:
        return False
    named = causal.casefold() in (name.casefold() for name in architectures(fields))
    return named and obstacle(fields, model) is None


def obstacle(fields: Fields, model: str) -> str | None:
    """Return why the model's name or config.json rules out an auto-regressive model; None if
    neither does.
    """
    kind = str(fields.get("model_type"))
    if (known := not_covered(fields)) is not None:
        return known
    for source, name in _names(fields, model):
        for part, advice in DIFFUSION_NAMES.items():
            if part in name.casefold():
                return f"it is a diffusion model by {source} ({name}){advice}"
    foreign = _foreign_classes(fields)
    if foreign:
        return (
            f"its auto_map asks for code of its own ({foreign[0]}), which is not run, and what "
            "that computes is not known"
        )
    if kind in BIDIRECTIONAL or (kind in ENCODERS and fields.get("is_decoder") is not True):
        why = "" if kind in BIDIRECTIONAL else ", as is_decoder is not true"
        return f"a {kind} model attends in both directions{why}"
    for field, values in (("is_causal", (False,)), ("use_bidirectional_attention", (True, "all"))):
        if fields.get(field) in values:
            return f"it attends in both directions ({field} is {json.dumps(fields[field])})"
    return None


def _names(fields: Fields, model: str) -> Iterator[tuple[str, str]]:
    """Yield (source, name) for each name that may tell what the model is."""
    yield "its name", PurePath(model).name
    yield "the _name_or_path of config.json", str(fields.get("_name_or_path") or "")
    for source, names in (
        ("its architectures", architectures(fields)),
        ("its auto_map", remote_classes(fields)),
    ):
        for name in names:
            yield source, name


def _foreign_classes(fields: Fields) -> list[str]:
    """Return the model classes of auto_map that transformers lacks; it has since adopted the
    others.
    """
    remote = remote_classes(fields)
    if not remote:
        return []
    own = _own_classes()
    return [name for name in remote if name.casefold() not in own]


def _own_classes() -> set[str]:
    """Return the names in transformers, folded."""
    import transformers

    return {name.casefold() for name in dir(transformers)}


CAUSAL = Family(
    about="An auto-regressive model of transformers, or a GGUF file of one: a judge.",
    model_class="AutoModelForCausalLM",
    answers_for="next",
    attention=Causal(),
    tokenizer_class="AutoTokenizer",
    takes_gguf=True,
    recognizes=is_autoregressive,
    obstacle=obstacle,
)
