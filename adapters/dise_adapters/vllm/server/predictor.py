"""vLLM and SGLang servers as models. The tokenizer is loaded on this side, from the folder
or hub id that the server names, or the one behind a # in its address.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from dise_adapters.checkpoint.hub import ModelFiles, model_folder
from dise_adapters.families.causal import CAUSAL
from dise_adapters.predictor import catalog_for, predictor_of
from dise_adapters.vllm.families import predictor_for, refuse_unrunnable
from dise_core import (
    Ability,
    BlockCausal,
    Canvases,
    EngineConfig,
    InputError,
    MaskPredictor,
    ModelError,
    Read,
    Reader,
    Reading,
)

if TYPE_CHECKING:
    from dise_adapters.vllm.server.http import Connection
    from dise_adapters.vllm.server.schemas import Served

TOKENIZER_FILES = ["*.json", "*.jinja", "*.model", "*.txt"]


class VllmServerPredictor(MaskPredictor):
    """A model that a vLLM server runs, or an SGLang server."""

    example = "http://127.0.0.1:8000"
    heeds = frozenset({"revision", "mask_token_id", "block_size"})  # others: the server's

    @classmethod
    def claims(cls, model: str, revision: str | None = None) -> bool:  # noqa: ARG003
        return model.startswith(("http://", "https://"))

    @classmethod
    def load(cls, model: str, config: EngineConfig) -> Self:
        if not cls.claims(model):
            raise InputError(
                f"adapter 'vllm-server' takes an address, http://HOST:PORT, not {model!r}",
                "adapter",
            )
        from dise_adapters.vllm.server.http import Connection

        address, _, source = model.partition("#")
        connection = Connection(address)
        served, address = connection.model(), connection.address
        files = source or served.root or served.id
        try:
            folder = model_folder(files, config.revision, TOKENIZER_FILES)
        except (InputError, ModelError) as error:
            raise ModelError(
                f"{address} runs {files!r}, whose tokenizer is not here; name it: {address}#FOLDER"
            ) from error
        name = f"{address}#{source}" if source else address
        predictor = _family_predictor(name, folder, connection, served, config)
        return cls(predictor, served.max_model_len)

    def __init__(self, predictor: MaskPredictor, max_length: int | None) -> None:
        """predictor: asks the server. max_length: of the texts that the server takes."""
        self._predictor, self.tokenizer, info = predictor, predictor.tokenizer, predictor.info
        max_length = min(info.max_length, max_length or info.max_length)
        is_writing = isinstance(info.attention, Canvases)
        self.info = replace(info, max_length=max_length, writes_canvases=is_writing)

    @property
    def abilities(self) -> frozenset[Ability]:  # type: ignore[override]
        return self._predictor.abilities

    def read(self, reads: Sequence[Read]) -> Sequence[Reading]:
        return self._predictor.read(reads)


def _family_predictor(
    name: str, folder: Path, connection: Connection, served: Served, config: EngineConfig
) -> MaskPredictor:
    """Return the predictor of what is served; folder: with its config.json and tokenizer."""
    from dise_adapters.vllm.server.canvases import CanvasReader
    from dise_adapters.vllm.server.remote import ServerJudgeReader, ServerReader
    from dise_adapters.vllm.server.sglang import SglangReader

    files, catalog = ModelFiles.within(folder), catalog_for(config)
    fields = files.fields
    predictor = predictor_for(catalog, fields, str(folder)) or predictor_of(CAUSAL)
    names = (name, str(folder.absolute()))
    attention = predictor.family.attention_of(fields, names, config.block_size)
    if served.owned_by == "sglang":
        if not isinstance(attention, BlockCausal):
            raise InputError(
                f"{name} is an SGLang server of a model that does not attend in blocks, of "
                "which it tells nothing: load the model itself.",
                "model",
            )
        return predictor(files, name, config, SglangReader(connection))
    if isinstance(attention, Canvases):
        reader: Reader = CanvasReader(connection, served.id, attention.length)
        return predictor(files, name, config, reader)
    refuse_unrunnable(predictor.family, attention, name)
    settings = predictor.family.settings(fields, str(folder))
    reader = ServerJudgeReader(connection, served.id)
    if settings is not None:
        reader = ServerReader(connection, served.id, settings["vocab_size"])
    return predictor(files, name, config, reader)
