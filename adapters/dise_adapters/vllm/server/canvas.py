"""Block-diffusion models that vLLM itself runs (DiffusionGemma): DiSE of a finished text through
read-only canvases that are seeded with it. Not yet run on a GPU.

Such a model attends causally to the text before a canvas, and in both directions within it. A Read
is answered by consecutive canvases, the first of which begins at the first position asked; Reads
that need the same canvas share its request.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from dise_adapters.checkpoint.config import ConfigJson
from dise_adapters.checkpoint.hub import read_config
from dise_adapters.checkpoint.tokenizer import FastTokenizer
from dise_adapters.vllm.server.predictor import NamedServer, refuse_local_options
from dise_adapters.vllm.server.schemas import CanvasAnswer
from dise_core import EngineConfig, Ids, MaskPredictor, ModelInfo, Read, Reading, TokenLogProbs
from dise_core.errors import CheckpointError, InputError
from dise_core.records import Record
from dise_core.sequence import SpecialTokens

SCHEME = "canvas+"

MAX_IDS = 127
"""The most distinct tokens in one request: vLLM accepts 128, but drops the last if the likeliest
token is not among them.
"""

BYTES_PER_ENTRY = 2**9
"""A token's entry in an answer: numbers and its text."""

IN_FLIGHT = 32
"""The most requests in flight at one time."""


@dataclass(slots=True)
class SeededCanvas:
    """One canvas and the answers that it gives.

    token_ids: the text up to the canvas's end, int64. start: the canvas's first position. parts:
    the readings to complete, with the indices of those of their positions that the canvas holds,
    and where in the canvas these are.
    """

    token_ids: Ids
    start: int
    parts: list[tuple[Reading, Ids, Ids]] = field(default_factory=list)


class VllmCanvasPredictor(MaskPredictor):
    """A block-diffusion model on a vLLM server, for scoring finished texts only."""

    example = "canvas+http://127.0.0.1:8000"
    trained_on = "random tokens"

    @classmethod
    def claims(cls, model: str, revision: str | None = None) -> bool:  # noqa: ARG003
        return model.startswith((f"{SCHEME}http://", f"{SCHEME}https://"))

    @classmethod
    def load(cls, model: str, config: EngineConfig) -> Self:
        if not cls.claims(model):
            problem = f"adapter 'vllm-canvas' takes canvas+ and an address, not {model!r}"
            raise InputError(problem, "adapter")
        refuse_local_options(config)
        server = NamedServer.at(model.removeprefix(SCHEME), config.revision)
        return cls(server, FastTokenizer.from_folder(server.folder))

    def __init__(self, server: NamedServer, tokenizer: FastTokenizer) -> None:
        """Raises CheckpointError if the model's config.json is not that of such a model."""
        where = str(server.folder)
        fields = read_config(where) or {}
        if "canvas_length" not in fields:
            problem = f"{where}/config.json has no canvas_length"
            raise CheckpointError(f"{problem}: this is not a block-diffusion model")
        text = fields.get("text_config", fields)
        shared = {"eos_token_id": fields.get("eos_token_id")}
        config = ConfigJson({**shared, **(text if isinstance(text, dict) else {})}, where)
        eos_ids = config.token_ids("eos_token_id")
        special = SpecialTokens(None, frozenset(eos_ids), eos_ids[0] if eos_ids else None)
        max_length = server.served.max_model_len or config.whole("max_position_embeddings")
        name = f"{SCHEME}{server.name}"
        self.info = ModelInfo(name, config.whole("vocab_size"), max_length, special)
        self.tokenizer = tokenizer
        self._canvas_length = ConfigJson(fields, where).whole("canvas_length")
        self._server = server

    def read(self, reads: Sequence[Read]) -> Sequence[Reading]:
        """Return the answers in the order of the reads. Raises InputError for guidance, position 0
        or any readout but TokenLogProbs.
        """
        readings = [
            Reading(_targets(read), np.zeros(len(read.positions), np.float32)) for read in reads
        ]
        with ThreadPoolExecutor(IN_FLIGHT) as pool:
            list(pool.map(self._fill, self._canvases(reads, readings)))
        return readings

    def _canvases(self, reads: Sequence[Read], readings: list[Reading]) -> list[SeededCanvas]:
        """Return the canvases that answer the reads, each once, in order of first use."""
        canvases: dict[tuple[bytes, int], SeededCanvas] = {}
        for read, reading in zip(reads, readings, strict=True):
            first = min(read.positions.tolist(), default=0)
            places = (read.positions - first) % self._canvas_length
            starts = read.positions - places
            for start in np.unique(starts).tolist():
                rows = np.flatnonzero(starts == start)
                text = read.token_ids[: start + self._canvas_length]
                canvas = canvases.setdefault((text.tobytes(), start), SeededCanvas(text, start))
                canvas.parts.append((reading, rows, places[rows]))
        return list(canvases.values())

    def _fill(self, canvas: SeededCanvas) -> None:
        before, seed = np.split(canvas.token_ids, [canvas.start])
        targets = [reading.token_ids[rows] for reading, rows, _ in canvas.parts]
        wanted = np.unique(np.concatenate(targets)).tolist()
        logprobs: list[dict[int, float]] = [{} for _ in seed]
        for first in range(0, len(wanted), MAX_IDS):
            some = wanted[first : first + MAX_IDS]
            body = self._body(before.tolist(), seed.tolist(), some)
            size = BYTES_PER_ENTRY * (len(some) + 3) * len(seed)
            path = "/inference/v1/generate"
            answer = self._server.connection.ask(path, CanvasAnswer, body, size)
            for known, more in zip(logprobs, answer.logprobs_of(some, len(seed)), strict=True):
                known.update(more)
        for reading, rows, places in canvas.parts:
            pairs = zip(places.tolist(), reading.token_ids[rows].tolist(), strict=True)
            reading.logprobs[rows] = [logprobs[place][target] for place, target in pairs]

    def _body(self, prompt: list[int], canvas: list[int], wanted: list[int]) -> Record:
        spare = min({*range(MAX_IDS + 1)}.difference(wanted))
        ids = [*wanted, spare]
        return {
            "model": self._server.served.id,
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
    if not isinstance(read.readout, TokenLogProbs) or read.guidance is not None:
        message = "a block-diffusion model on vLLM tells the log-probabilities of given tokens"
        advice = "nothing else: score with it, and leave out logprobs; its server writes by itself"
        raise InputError(f"{message}, {advice}")
    if len(read.positions) and read.positions.min() == 0:
        problem = "a block-diffusion model on vLLM needs a prompt before its canvas"
        raise InputError(problem, "prompt")
    return read.readout.targets
