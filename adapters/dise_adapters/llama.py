"""LLaMA-3-8B-Instruct, and any auto-regressive model that transformers loads without remote code:
the judge.

A folder or hub id with safetensors, or the path of a GGUF file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from dise_adapters.autoregressive import architectures, is_autoregressive, obstacle
from dise_adapters.engines import Reader, open_reader
from dise_adapters.hub import config_if_any, is_gguf, model_folder, read_config
from dise_adapters.tokenizer import FastTokenizer
from dise_core.errors import CheckpointError, InputError, ModelError
from dise_core.model import Causal, MaskPredictor, ModelInfo
from dise_core.params import EngineConfig
from dise_core.reading import Read, Reading
from dise_core.sequence import SpecialTokens


class LlamaPredictor(MaskPredictor):
    """A loaded auto-regressive model: position i is answered from the tokens before it."""

    @classmethod
    def claims(cls, model: str) -> bool:
        """Return whether `model` is a GGUF file, or a folder or hub id of transformers' own causal
        class for its type.

        False for what is not auto-regressive all the same: encoders, diffusion models, code of the
        checkpoint's own.
        """
        if is_gguf(model):
            return True
        config = config_if_any(model)
        return config is not None and is_autoregressive(config, model)

    @classmethod
    def explain(cls, model: str) -> str | None:
        """Return what the config.json of a folder or hub id says, and what speaks against it.
        Raises as read_config.
        """
        config = read_config(model)
        if config is None:
            return None
        reason = obstacle(config, model)
        refused = "" if reason is None else f"; adapter 'llama' refuses it: {reason}"
        names = ", ".join(architectures(config)) or "none"
        return (
            f"Its config.json says model_type {config.get('model_type')!r} and architectures "
            f"{names}{refused}"
        )

    @classmethod
    def load(cls, model: str, config: EngineConfig) -> Self:
        """Load a folder, hub id or GGUF file.

        Raises CheckpointError for a model that is not auto-regressive and weights that do not fit,
        ModelError otherwise.
        """
        if not is_gguf(model):
            return cls(model_folder(model, config.revision), None, model, config)
        path = Path(model).expanduser()
        if not path.is_file():
            raise InputError(f"there is no file {model!r}", "model")
        return cls(path.parent, path.name, model, config)

    def __init__(
        self,
        folder: Path,
        gguf_file: str | None,
        name: str,
        config: EngineConfig,
        reader: Reader | None = None,
    ) -> None:
        """Load the checkpoint or the GGUF file in `folder`, to be called `name`; only its tokenizer
        if there is a reader.
        """
        from transformers import AutoConfig, AutoModelForCausalLM

        from dise_adapters.loading import quiet

        if gguf_file is None:
            _refuse_others(folder, name)
        source = {} if gguf_file is None else {"gguf_file": gguf_file}
        with quiet():
            try:
                fields: Any = AutoConfig.from_pretrained(folder, local_files_only=True, **source)
            except (OSError, ValueError, ImportError, KeyError) as error:
                raise ModelError(f"cannot load {name}: {' '.join(str(error).split())}") from error
            self.tokenizer = FastTokenizer(_tokenizer(folder, source))
        special = SpecialTokens(None, frozenset(_end_ids(getattr(fields, "eos_token_id", None))))
        vocab_size = _number(fields, "vocab_size", name)
        max_length = _number(fields, "max_position_embeddings", name)
        self.info = ModelInfo(name, vocab_size, max_length, special, Causal())
        self._reader = reader or open_reader(
            AutoModelForCausalLM, folder, config, "causal", gguf_file=gguf_file
        )

    def read(self, reads: Sequence[Read]) -> Sequence[Reading]:
        """Answer the reads in their order. Raises InputError for position 0, which has no
        answer.
        """
        return self._reader.read(reads)


def _refuse_others(folder: Path, name: str) -> None:
    """Raise CheckpointError for a model whose config.json says that it is not auto-regressive."""
    reason = obstacle(read_config(str(folder)) or {}, name)
    if reason is not None:
        raise CheckpointError(f"{name} is refused as an auto-regressive model: {reason}")


def _number(fields: Any, field: str, name: str) -> int:
    value = getattr(fields, field, None)
    if not isinstance(value, int):
        raise CheckpointError(
            f"the configuration of {name} gives no {field}, so it is not a text model of a known "
            "length"
        )
    return value


def _tokenizer(folder: Path, source: dict[str, str]) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, **source)
    except (OSError, ValueError, ImportError) as error:
        raise ModelError(
            f"cannot load the tokenizer in {folder}: {' '.join(str(error).split())}"
        ) from error


def _end_ids(ids: int | list[int] | None) -> list[int]:
    """Return the end tokens of a configuration, which names none, one or several."""
    return [] if ids is None else [ids] if isinstance(ids, int) else ids
