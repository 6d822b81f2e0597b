"""The families' config.json as configurations of transformers, so that vLLM reads them without
remote code.

One class for each model_type, under its own name in this module: vLLM's processes find it there.
"""

from __future__ import annotations

from typing import Any

import transformers
from transformers import PretrainedConfig

from dise_adapters.families.family import Family
from dise_adapters.vllm.families import runnable


def config_class(family: Family, model_type: str) -> type[PretrainedConfig]:
    """Return a configuration made of the fields of the family's config.json. It raises
    CheckpointError for variants that are not covered.
    """
    base = getattr(transformers, family.model_class).config_class

    def translated(self: Any, **fields: Any) -> None:
        # transformers makes one without fields too, for its own comparison.
        settings = family.settings(fields, "the model") if fields else {}
        base.__init__(self, **{**fields, **(settings or {})})

    name = "".join(part.title() for part in model_type.split("-")) + "Config"
    members = {"model_type": model_type, "__init__": translated, "__module__": __name__}
    return type(name, (base,), members)


CONFIGS = {
    model_type: config_class(family, model_type)
    for family in runnable()
    for model_type in family.model_types
}
"""By their model_type."""

globals().update({each.__name__: each for each in CONFIGS.values()})
