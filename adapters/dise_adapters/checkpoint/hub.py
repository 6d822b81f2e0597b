"""Finds a model's files in a local folder or in a snapshot from the hub."""

import os.path
import re
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self

from dise_adapters.checkpoint.asking import asked
from dise_adapters.checkpoint.files import read_object, refused
from dise_adapters.checkpoint.gguf import GgufFile
from dise_adapters.checkpoint.lora import CONFIG as ADAPTER_CONFIG
from dise_adapters.checkpoint.unfetched import Unfetched
from dise_adapters.checkpoint.weights import Safetensors, WeightSource
from dise_core import DiseError, InputError
from dise_core.files import refuse_special
from dise_core.models.named import ModelName
from dise_core.records import JsonFields

CONFIG = ["config.json"]
DESCRIPTION = ["*.json", "*.jinja", "*.model", "*.txt"]
EVERYTHING = [*DESCRIPTION, "*.safetensors"]


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model's folder, and the fields of its config.json or of its GGUF file. unfetched:
    its weights where they are still on the hub.
    """

    folder: Path
    fields: JsonFields
    gguf: GgufFile | None = None
    unfetched: Unfetched | None = None

    @property
    def weights(self) -> WeightSource:
        """Its weights, wherever they are."""
        return self.gguf or self.unfetched or Safetensors(self.folder)

    @classmethod
    def within(cls, folder: Path) -> Self:
        """Return a folder's files. Raises InputError for one without a config.json, and
        CheckpointError for one that cannot be read, or in place of one of whose files there is
        a pipe or a device, which would be waited for.
        """
        has_config = (folder / "config.json").exists()
        if (folder / ADAPTER_CONFIG).is_file() and not has_config:
            raise InputError(
                f"{folder} holds a LoRA adapter and no model: name the model that it was "
                "trained on, and this folder as lora (--lora).",
                "model",
            )
        if not has_config:
            raise InputError(
                f"{folder} {'has no config.json' if any(folder.iterdir()) else 'is empty'}: name "
                "the folder of a checkpoint, with its config.json, tokenizer and weights, a GGUF "
                "file or a model on the hub.",
                "model",
            )
        for path in folder.iterdir():
            if f"*{path.suffix}" in EVERYTHING and path.exists():
                with refused(f"cannot read {path}"):
                    refuse_special(path)
        return cls(folder, read_object(folder / "config.json"))


def find(model: str, revision: str | None = None) -> ModelFiles | None:
    """Return the folder, the GGUF file or, of a hub id, config.json alone; None if
    `model` can be none of them. A ModelName is looked up once.

    Raises InputError for a path that does not exist and for a folder without a
    config.json, CheckpointError for one that cannot be read and for a GGUF file that
    cannot be right, ModelError if the hub has no such model or cannot be reached.
    """
    return ModelName.of(model).once(_look_up, revision)


def _look_up(model: str, revision: str | None) -> ModelFiles | None:
    if is_gguf(model):
        file = GgufFile.at(gguf_path(model))
        return ModelFiles(file.folder, file.config(), file)
    is_hub_id = re.fullmatch(r"[^./][^/]*/[^./][^/]*", model)
    if not (_is_folder(model) or is_hub_id):
        return None
    return ModelFiles.within(model_folder(model, revision, CONFIG))


def fetch(model: str, revision: str | None = None) -> ModelFiles:
    """Return a model's files, downloaded first if on the hub. Raises as `find` does, and
    InputError for weights that are larger than the disk.
    """
    files = described(model, revision)
    files.weights.fetched()
    return replace(files, unfetched=None)


def described(model: str, revision: str | None = None) -> ModelFiles:
    """Return a model's files. Of one on the hub all but the weights are downloaded, unless
    these are here. Raises as `find` does.
    """
    files = find(model, revision) if is_gguf(model) or _is_folder(model) else None
    if files is not None:
        return files
    files = ModelFiles.within(model_folder(model, revision, DESCRIPTION))
    is_here = Safetensors(files.folder).is_here
    return files if is_here else replace(files, unfetched=Unfetched(files.folder, str(model)))


def read_config(model: str, revision: str | None = None) -> JsonFields | None:
    """Return the config.json of a folder or hub id, or what a GGUF file says in its
    place; None if `model` can be none of them. Raises what `find` raises.
    """
    files = find(model, revision)
    return None if files is None else files.fields


def config_if_any(model: str, revision: str | None = None) -> JsonFields | None:
    """Return what read_config does, or None if it raises: nobody claims such a model."""
    try:
        return read_config(model, revision)
    except DiseError:
        return None


def model_folder(
    model: str, revision: str | None = None, patterns: list[str] | None = None
) -> Path:
    """Return a folder with the model's files, downloaded first if `model` is a hub id.

    Downloads only safetensors, configuration and tokenizer files, and retries transient
    errors.
    Raises InputError for a path that does not exist, ModelError if the download fails.
    """
    if _is_folder(model):
        return Path(model).expanduser()
    from huggingface_hub import snapshot_download

    patterns = patterns or EVERYTHING
    download = partial(snapshot_download, model, revision=revision, allow_patterns=patterns)
    return Path(asked(model, download))


def is_gguf(model: str) -> bool:
    """Return whether `model` is the path of a GGUF file."""
    return model.endswith(".gguf")


def gguf_path(model: str) -> Path:
    """Return the path of a GGUF file. Raises InputError if there is none."""
    path = Path(model).expanduser()
    if not os.path.isfile(path):  # which never raises
        raise InputError(f"there is no file {model!r:.300}", "model")
    return path


def _is_folder(model: str) -> bool:
    """Return whether it is a folder. Raises InputError for a path that is none."""
    if os.path.isdir(os.path.expanduser(model)):  # which never raise
        return True
    if model.startswith((".", "/", "~")):
        raise InputError(f"there is no folder {model!r:.300}", "model")
    return False
