"""What config.json calls a checkpoint and its classes, and what its folder is called."""

from collections.abc import Mapping
from pathlib import PurePath

from dise_core.records import JsonFields

MODEL_CLASSES = ("AutoModel", "AutoModelForCausalLM", "AutoModelForMaskedLM")
"""The entries of auto_map that name model classes."""


def architectures(fields: JsonFields) -> list[str]:
    """Return the class names in config.json's `architectures`, if that is a list."""
    names = fields.get("architectures")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def remote_classes(fields: JsonFields) -> list[str]:
    """Return the class names of auto_map's model entries."""
    auto_map = fields.get("auto_map")
    if not isinstance(auto_map, Mapping):
        return []
    entries = (auto_map.get(key) for key in MODEL_CLASSES)
    return [entry.rpartition(".")[2] for entry in entries if isinstance(entry, str)]


def checkpoint_names(fields: JsonFields, *models: str) -> list[str]:
    """Return what hub ids or paths, and config.json's _name_or_path, call a checkpoint:
    the last part of each or, for a snapshot in the hub's cache, that of the id that it is
    a snapshot of.
    """
    names = (*models, str(fields.get("_name_or_path") or ""))
    return [_last_name(PurePath(name)) for name in names]


def _last_name(path: PurePath) -> str:
    is_snapshot = path.parent.name == "snapshots" and len(path.parts) > 2
    return path.parts[-3].rpartition("--")[2] if is_snapshot else path.name
