"""Block-diffusion models that vLLM itself runs (DiffusionGemma): DiSE of a finished text through
read-only canvases that are seeded with it.

Give the model as canvas+http://127.0.0.1:8000 for a server started with `vllm serve MODEL
--max-logprobs 128`. Not yet run on a GPU.

Such a model attends causally to the text before a canvas, and in both directions within it. A Read
is answered by consecutive canvases, the first of which begins at the first position asked. Each is
one request: the canvas is seeded with the text's own tokens, one denoising step runs, and nothing
is committed. Its log-probabilities at every position are those that DiSE needs. Reads that need the
same canvas share its request, as a score and the report on its tokens do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from dise_adapters.checkpoint.hub import model_folder, read_config
from dise_adapters.checkpoint.tokenizer import FastTokenizer
from dise_adapters.vllm.schemas import Canvases
from dise_adapters.vllm.server import TOKENIZER_FILES, refuse_local_options
from dise_core.arrays import Ids
from dise_core.errors import CheckpointError, InputError, ModelOutputError
from dise_core.model import MaskPredictor, ModelInfo
from dise_core.params import EngineConfig, input_error
from dise_core.reading import Read, Reading, TokenLogProbs
from dise_core.records import Record
from dise_core.sequence import SpecialTokens

if TYPE_CHECKING:
    from dise_adapters.vllm.http import Connection
    from dise_adapters.vllm.schemas import Served

SCHEME = "canvas+"

MAX_IDS = 127
"""The most distinct tokens in one request: vLLM accepts 128, but drops the last if the likeliest
token is not among them.
"""

BYTES_PER_ENTRY = 2**9
"""A token's entry in an answer: numbers and its text."""

IN_FLIGHT = 32
"""The most requests in flight at one time."""


class _TextConfig(BaseModel):
    vocab_size: int = Field(ge=2, le=2**31)
    max_position_embeddings: int | None = Field(default=None, ge=1)
    eos_token_id: int | list[int] | None = None


class _CanvasConfig(BaseModel):
    """What is read of config.json; what the text's part lacks stands beside it."""

    canvas_length: int = Field(ge=1, le=2**16)
    text_config: _TextConfig

    @property
    def eos_ids(self) -> list[int]:
        ends = self.text_config.eos_token_id
        return [] if ends is None else [ends] if isinstance(ends, int) else ends

    @classmethod
    def of(cls, fields: Record, folder: Path) -> _CanvasConfig:
        """Return config.json's fields. Raises CheckpointError."""
        if "canvas_length" not in fields:
            raise CheckpointError(
                f"{folder}/config.json has no canvas_length: this is not a block-diffusion model"
            )
        text = fields.get("text_config", fields)
        shared = {"eos_token_id": fields.get("eos_token_id")}
        try:
            return cls.model_validate(
                {**fields, "text_config": {**shared, **text} if isinstance(text, dict) else text},
                strict=True,
            )
        except ValidationError as error:
            raise CheckpointError(f"{folder}/config.json: {input_error(error)}") from error


@dataclass(slots=True)
class Canvas:
    """One canvas and the reads that it answers.

    token_ids: the text up to the canvas's end, int64. start: the canvas's first position. wanted:
    the tokens whose log-probabilities are asked for. asked: the index of each read, with the
    indices of those of its positions that the canvas holds.
    """

    token_ids: Ids
    start: int
    wanted: set[int] = field(default_factory=set)
    asked: list[tuple[int, Ids]] = field(default_factory=list)


class VllmCanvasPredictor(MaskPredictor):
    """A block-diffusion model on a vLLM server, for scoring finished texts only."""

    example = "canvas+http://127.0.0.1:8000"

    @classmethod
    def claims(cls, model: str, revision: str | None = None) -> bool:  # noqa: ARG003
        return model.startswith((f"{SCHEME}http://", f"{SCHEME}https://"))

    @classmethod
    def load(cls, model: str, config: EngineConfig) -> Self:
        """Ask the server which model it runs, and load that model's tokenizer. Raises ModelError if
        the server cannot be reached, CheckpointError if it does not run a block-diffusion model.
        """
        from dise_adapters.vllm.http import Connection

        if not cls.claims(model):
            raise InputError(
                f"adapter 'vllm-canvas' takes canvas+ and an address, not {model!r}", "adapter"
            )
        refuse_local_options(config)
        address, _, source = model.removeprefix(SCHEME).partition("#")
        connection = Connection(address)
        served = connection.model()
        folder = model_folder(source or served.root or served.id, config.revision, TOKENIZER_FILES)
        fields = _CanvasConfig.of(read_config(str(folder)) or {}, folder)
        name = f"{SCHEME}{connection.address}" + (f"#{source}" if source else "")
        return cls(name, connection, served, fields, FastTokenizer.from_folder(folder))

    def __init__(
        self,
        name: str,
        connection: Connection,
        served: Served,
        fields: _CanvasConfig,
        tokenizer: FastTokenizer,
    ) -> None:
        """fields: the model's config.json."""
        eos_ids = fields.eos_ids
        self.tokenizer = tokenizer
        special = SpecialTokens(None, frozenset(eos_ids), eos_ids[0] if eos_ids else None)
        max_length = served.max_model_len or fields.text_config.max_position_embeddings
        if max_length is None:
            raise CheckpointError(
                f"{name} does not say how long a text may be: its config.json has no "
                "max_position_embeddings"
            )
        self.info = ModelInfo(name, fields.text_config.vocab_size, max_length, special)
        self._canvas_length = fields.canvas_length
        self._connection = connection
        self._served = served.id

    def read(self, reads: Sequence[Read]) -> Sequence[Reading]:
        """Return the answers in the order of the reads. Raises InputError for guidance, position 0
        or any readout but TokenLogProbs.
        """
        for read in reads:
            _check(read)
        canvases = self._canvases(reads)
        logprobs = [np.zeros(len(read.positions), np.float32) for read in reads]
        with ThreadPoolExecutor(IN_FLIGHT) as pool:
            answers = list(pool.map(self._logprobs, canvases))
        for canvas, found in zip(canvases, answers, strict=True):
            for index, rows in canvas.asked:
                positions, targets = (
                    reads[index].positions[rows] - canvas.start,
                    _targets(reads[index])[rows],
                )
                logprobs[index][rows] = [
                    found[position][target]
                    for position, target in zip(positions.tolist(), targets.tolist(), strict=True)
                ]
        return [Reading(_targets(read), each) for read, each in zip(reads, logprobs, strict=True)]

    def _canvases(self, reads: Sequence[Read]) -> list[Canvas]:
        """Return the canvases that answer the reads, each once, in order of first use."""
        canvases: dict[tuple[bytes, int], Canvas] = {}
        for index, read in enumerate(reads):
            for start, rows in self._parts(read.positions):
                text = read.token_ids[: start + self._canvas_length]
                canvas = canvases.setdefault((text.tobytes(), start), Canvas(text, start))
                canvas.wanted.update(_targets(read)[rows].tolist())
                canvas.asked.append((index, rows))
        return list(canvases.values())

    def _parts(self, positions: Ids) -> Iterator[tuple[int, Ids]]:
        """Yield each canvas's start, and the indices of the positions that it holds."""
        if len(positions) == 0:
            return
        first = int(positions.min())
        number = (positions - first) // self._canvas_length
        for canvas in np.unique(number):
            yield first + int(canvas) * self._canvas_length, np.flatnonzero(number == canvas)

    def _logprobs(self, canvas: Canvas) -> list[dict[int, float]]:
        """Return the log-probabilities of the wanted tokens at each position of the canvas."""
        before, seed = np.split(canvas.token_ids, [canvas.start])
        found: list[dict[int, float]] = [{} for _ in seed]
        wanted = sorted(canvas.wanted)
        for first in range(0, len(wanted), MAX_IDS):
            some = wanted[first : first + MAX_IDS]
            body = self._body(before.tolist(), seed.tolist(), some)
            size = BYTES_PER_ENTRY * (len(some) + 3) * len(seed)
            answer = self._connection.post("/inference/v1/generate", body, Canvases, size)
            content = answer.choices[0].logprobs.content
            if len(content) != len(seed):
                raise ModelOutputError(
                    f"{self._connection.address} answered {len(content)} positions of a canvas of "
                    f"{len(seed)}"
                )
            for position, entry in zip(found, content, strict=True):
                position.update((top.token_id, top.logprob) for top in (entry, *entry.top_logprobs))
                if missing := set(some) - set(position):
                    raise ModelOutputError(
                        f"{self._connection.address} left out token {min(missing)}, which was asked"
                    )
        return found

    def _body(self, prompt: list[int], canvas: list[int], wanted: list[int]) -> Record:
        spare = next(
            token_id for token_id in range(self.info.vocab_size) if token_id not in set(wanted)
        )
        ids = [*wanted, spare]
        return {
            "model": self._served,
            "token_ids": prompt,
            "sampling_params": {
                "max_tokens": len(canvas),
                "temperature": 1.0,
                "top_p": 1.0,
                "top_k": 0,
                "logprobs": len(ids),
                "logprob_token_ids": ids,
                "detokenize": False,
                "extra_args": {
                    "diffusion_seed_canvas": canvas,
                    "diffusion_canvas_length": len(canvas),
                    "diffusion_max_steps": 1,
                    "diffusion_read_only": True,
                },
            },
        }


def _targets(read: Read) -> Ids:
    assert isinstance(read.readout, TokenLogProbs)
    return read.readout.targets


def _check(read: Read) -> None:
    if not isinstance(read.readout, TokenLogProbs) or read.guidance is not None:
        raise InputError(
            "a block-diffusion model on vLLM tells the log-probabilities of given tokens, nothing "
            "else: score with it, and "
            "leave out logprobs; its server writes by itself"
        )
    if len(read.positions) and read.positions.min() == 0:
        raise InputError(
            "a block-diffusion model on vLLM needs a prompt before its canvas", "prompt"
        )
