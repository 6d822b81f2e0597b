"""vLLM servers as models, named by their address, such as http://127.0.0.1:8000.

A server of LLaDA or Dream needs our plugin (docs/vllm.md); one of an auto-regressive model, for a
judge, is a stock server. The tokenizer is loaded on this side, from the folder or hub id that the
server names, or the one after a #: http://gpu7:8000#GSAI-ML/LLaDA-8B-Instruct.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from dise_adapters.checkpoint.hub import model_folder, read_config
from dise_adapters.families.causal import CAUSAL
from dise_adapters.predictor import predictor_of
from dise_adapters.vllm.families import predictor_for, refuse_unrunnable
from dise_core.errors import InputError, ModelError
from dise_core.model import MaskPredictor
from dise_core.params import EngineConfig
from dise_core.reading import Read, Reading

if TYPE_CHECKING:
    from dise_adapters.vllm.http import Connection
    from dise_adapters.vllm.schemas import Served

TOKENIZER_FILES = ["*.json", "*.jinja", "*.model", "*.txt"]


class VllmServerPredictor(MaskPredictor):
    """A model that a vLLM server runs."""

    example = "http://127.0.0.1:8000"

    @classmethod
    def claims(cls, model: str, revision: str | None = None) -> bool:  # noqa: ARG003
        return model.startswith(("http://", "https://"))

    @classmethod
    def load(cls, model: str, config: EngineConfig) -> Self:
        """Ask the server which model it runs, and load that model's tokenizer. Raises ModelError if
        the server cannot be reached or the tokenizer is not found.
        """
        from dise_adapters.vllm.http import Connection

        if not cls.claims(model):
            raise InputError(
                f"adapter 'vllm-server' takes an address, http://HOST:PORT, not {model!r}",
                "adapter",
            )
        refuse_local_options(config)
        address, _, named = model.partition("#")
        connection = Connection(address)
        address, served = connection.address, connection.model()
        source = named or served.root or served.id
        try:
            folder = model_folder(source, config.revision, TOKENIZER_FILES)
        except (InputError, ModelError) as error:
            raise ModelError(
                f"{address} runs {source!r}, whose tokenizer is not here; name it: {address}#FOLDER"
            ) from error
        name = f"{address}#{named}" if named else address
        return cls(_described(folder, name, config, connection, served.id), served)

    def __init__(self, described: MaskPredictor, served: Served) -> None:
        """described: the model's own predictor, whose Reads the server answers."""
        self._described = described
        self.tokenizer, longest = described.tokenizer, described.info.max_length
        longest = min(longest, served.max_model_len or longest)
        self.info = replace(described.info, max_length=longest)

    def read(self, reads: Sequence[Read]) -> Sequence[Reading]:
        return self._described.read(reads)


def refuse_local_options(config: EngineConfig) -> None:
    """Raise InputError for options that only the server can set."""
    for name in ("engine", "device", "dtype", "attn_implementation"):
        if getattr(config, name) != EngineConfig.model_fields[name].default:
            raise InputError(
                f"{name} is the server's to choose where the model is an address; leave it out",
                name,
            )


def _described(
    folder: Path, name: str, config: EngineConfig, connection: Connection, served: str
) -> MaskPredictor:
    """Return the predictor of the model's family, whose Reads the server answers."""
    from dise_adapters.vllm.remote import ServerJudgeReader, ServerReader

    fields = read_config(str(folder)) or {}
    kind = predictor_for(fields, str(folder))
    if kind is not None:
        names = (name, str(folder.absolute()))
        attention = kind.family.attention_of(fields, names, config.block_size)
        refuse_unrunnable(kind.family, attention, name)
    settings = None if kind is None else kind.family.settings(fields, str(folder))
    if kind is None or settings is None:
        judge = kind or predictor_of(CAUSAL)
        return judge(folder, name, config, ServerJudgeReader(connection, served))
    return kind(folder, name, config, ServerReader(connection, served, settings["vocab_size"]))
