"""Which implementation of attention a class of transformers is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import transformers

from dise_core.records import Record

if TYPE_CHECKING:
    from dise_adapters.families.family import Checkpoint


def implementation_of(checkpoint: Checkpoint, name: str) -> str:
    """Return the name, or "eager" in place of "sdpa" for a class that lacks that: from transformers
    5.20 on Gemma 2, whose capped scores it cannot compute.
    """
    if name != "sdpa":
        return name
    kind = getattr(transformers, checkpoint.family.model_class)
    if not hasattr(kind, "config_class"):  # an Auto class: the configuration tells which it is
        kind = kind._model_mapping.get(type(_config(checkpoint)), None)
    return "sdpa" if getattr(kind, "_supports_sdpa", True) else "eager"


def _config(checkpoint: Checkpoint) -> Any:
    """Return the checkpoint's configuration as transformers reads it."""
    source: Record = {}
    if checkpoint.gguf_file is not None:
        source["gguf_file"] = checkpoint.gguf_file
    return transformers.AutoConfig.from_pretrained(
        checkpoint.folder, local_files_only=True, trust_remote_code=False, **source
    )
