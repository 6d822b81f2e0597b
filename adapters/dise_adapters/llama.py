"""LLaMA-3-8B-Instruct, and any auto-regressive model that transformers loads without remote code: the judge.

A folder or hub id with safetensors, or the path of a GGUF file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from dise_adapters.engines import Reader, open_reader
from dise_adapters.hub import is_gguf, model_folder, read_config
from dise_adapters.tokenizer import FastTokenizer
from dise_core.errors import InputError, ModelError
from dise_core.interfaces import MaskPredictor
from dise_core.params import EngineConfig
from dise_core.reading import Read, Reading
from dise_core.sequence import SpecialTokens


class LlamaPredictor(MaskPredictor):
    """A loaded auto-regressive model: position i is answered from the tokens before it."""

    is_causal = True

    @classmethod
    def claims(cls, model: str) -> bool:
        """Return whether `model` is a GGUF file, or a folder or hub id of a type that transformers knows as causal."""
        if is_gguf(model):
            return True
        config = read_config(model)
        if config is None:
            return False
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

        return config.get("model_type") in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    @classmethod
    def load(cls, model: str, config: EngineConfig) -> Self:
        """Load a folder, hub id or GGUF file. Raises CheckpointError for weights that do not fit, ModelError otherwise."""
        if not is_gguf(model):
            return cls(model_folder(model, config.revision), None, model, config)
        path = Path(model).expanduser()
        if not path.is_file():
            raise InputError(f"there is no file {model!r}", "model")
        return cls(path.parent, path.name, model, config)

    def __init__(
        self, folder: Path, gguf_file: str | None, name: str, config: EngineConfig, reader: Reader | None = None
    ) -> None:
        """Load the checkpoint or the GGUF file in `folder`, to be called `name`; only its tokenizer if there is a reader."""
        from transformers import AutoConfig, AutoModelForCausalLM

        from dise_adapters.loading import quiet

        source = {} if gguf_file is None else {"gguf_file": gguf_file}
        with quiet():
            try:
                fields: Any = AutoConfig.from_pretrained(folder, local_files_only=True, **source)
            except (OSError, ValueError, ImportError, KeyError) as error:
                raise ModelError(f"cannot load {name}: {' '.join(str(error).split())}") from error
            self.tokenizer = FastTokenizer(_tokenizer(folder, source))
        self.name = name
        self.vocab_size = fields.vocab_size
        self.max_length = fields.max_position_embeddings
        self.special = SpecialTokens(None, frozenset(_end_ids(fields.eos_token_id)))
        self._reader = reader or open_reader(AutoModelForCausalLM, folder, config, "causal", gguf_file=gguf_file)

    def read(self, reads: Sequence[Read]) -> Sequence[Reading]:
        """Answer the reads in their order. Raises InputError for position 0, which has no answer."""
        return self._reader.read(reads)


def _tokenizer(folder: Path, source: dict[str, str]) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, **source)
    except (OSError, ValueError, ImportError) as error:
        raise ModelError(f"cannot load the tokenizer in {folder}: {' '.join(str(error).split())}") from error


def _end_ids(ids: int | list[int] | None) -> list[int]:
    """Return the end tokens of a configuration, which names none, one or several."""
    return [] if ids is None else [ids] if isinstance(ids, int) else ids
