"""The families' configurations as transformers' classes: vLLM needs no remote code."""

from typing import Any

import transformers
from transformers import PretrainedConfig

from dise_adapters.families.family import Family
from dise_adapters.vllm.families import refuse_unrunnable
from dise_core.models.attention import BIDIRECTIONAL


def config_class(family: Family, model_type: str, module: str) -> type[PretrainedConfig]:
    """Return the configuration class that translates the family's config.json, or refuses
    it.
    module: where vLLM's processes find it by its name.
    """
    base = getattr(transformers, family.model_class).config_class

    def translated(self: Any, **fields: Any) -> None:
        # transformers also creates one without fields, to compare with.
        settings = family.settings(fields, "the model") if fields else {}
        names = (str(fields.get("name_or_path") or "the model"),)
        # Outside, where its name is known, a checkpoint that tells nothing was refused.
        attention = family.attention_of(fields, names, otherwise=BIDIRECTIONAL)
        refuse_unrunnable(family, attention, "the model")
        base.__init__(self, **{**fields, **(settings or {})})

    name = "".join(part.title() for part in model_type.split("-")) + "Config"
    members = {"model_type": model_type, "__init__": translated, "__module__": module}
    return type(name, (base,), members)
