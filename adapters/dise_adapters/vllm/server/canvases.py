"""DiffusionGemma on a stock vLLM server: a canvas whose tokens are given is read in one step,
and one that is hidden is written by vLLM.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from dise_adapters.vllm.server.http import Connection
from dise_adapters.vllm.server.schemas import CanvasAnswer, Version
from dise_adapters.vllm.server.seeded import SeededCanvas, completion
from dise_core import (
    Candidates,
    InputError,
    ModelError,
    ModelOutputError,
    Read,
    Reader,
    Reading,
    TokenLogProbs,
    TopLogProbs,
)
from dise_core.models.predictor import Ability
from dise_core.plans.rows import row_key

OLDEST = (0, 32)
"""The first vLLM that reads a given canvas; those before it would write another one."""

CanvasesByText = dict[tuple[bytes, bytes, str], SeededCanvas]
"""The canvases of a batch, by the text before each, their tokens and salts."""

CanvasRow = tuple[SeededCanvas, int, list[int]]
"""Where a position is read: its canvas, the row in it, the ids that are asked for by name."""


class CanvasReader(Reader):
    """Answers Reads through POST /v1/completions."""

    abilities: frozenset[Ability] = frozenset({"two-stream"})

    def __init__(self, connection: Connection, model: str, length: int) -> None:
        """length: of a canvas. Raises ModelError for a server that does not read them."""
        self._connection, self._model, self._length = connection, model, length
        version = connection.ask("/version", Version).version
        numbers = re.match(r"(\d+)\.(\d+)", version)
        if numbers and tuple(map(int, numbers.groups())) < OLDEST:
            raise ModelError(
                f"{connection.address} runs vLLM {version:.40}, which does not read a given "
                "canvas: run vLLM 0.32 or newer there."
            )

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        for read in reads:
            self._check(read)
        canvases: CanvasesByText = {}
        places = [self._places(read, canvases) for read in reads]
        self._ask((canvas, []) for canvas in canvases.values())
        self._ask((canvas, ids) for canvas in canvases.values() for ids in canvas.missing())
        hidden = {row_key(read): read for read in reads if _is_hidden(read)}
        answers = dict(zip(hidden, self._write(list(hidden.values())), strict=True))
        return [
            answers[row_key(read)] if _is_hidden(read) else _reading(read, rows)
            for read, rows in zip(reads, places, strict=True)
        ]

    def _check(self, read: Read) -> None:
        """Raise InputError for a Read that vLLM does not answer."""
        readout, positions = read.readout, read.positions
        if read.guidance is not None:
            raise InputError(
                "classifier-free guidance needs the transformers engine; leave out cfg_scale",
                "cfg_scale",
            )
        tells = isinstance(readout, TokenLogProbs | TopLogProbs | Candidates)
        if not tells or (isinstance(readout, TopLogProbs) and readout.with_entropy):
            raise InputError(
                "A vLLM server tells the likeliest tokens of a canvas, and neither all nor the "
                "entropy: take another scorer, such as 'dise', or the transformers engine."
            )
        if not isinstance(readout, Candidates) or not len(positions):
            return
        is_rest = np.array_equal(positions, np.arange(positions[0], len(read.token_ids)))
        has_options = replace(readout, temperature=0.0, noise=None) != Candidates()
        is_heeded = readout.temperature in (0.0, 1.0) and not has_options
        if not (is_heeded and is_rest) or self._row(read, int(positions[0])):
            raise InputError(
                "A vLLM server writes DiffusionGemma's canvases whole and by its own sampler: no "
                "option of drawing applies, and no part of an answer is written again."
            )

    def _row(self, read: Read, position: int) -> int:
        return (position - read.start) % self._length

    def _places(self, read: Read, canvases: CanvasesByText) -> list[CanvasRow]:
        """Return where each position is read, and put new canvases among the others; none
        of a Read whose canvas is to be written.
        """
        match readout := read.readout:
            case TokenLogProbs():
                num_top, columns = 0, readout.targets[:, None]
            case TopLogProbs():
                num_top, columns = readout.k, readout.named(len(read.positions))
            case _:
                return []
        places = []
        for position, ids in zip(read.positions.tolist(), columns.tolist(), strict=True):
            row = self._row(read, position)
            canvas = self._canvas(read, position - row, canvases)
            canvas.num_top = max(canvas.num_top, num_top)
            canvas.token_ids.setdefault(row, set()).update(ids)
            places.append((canvas, row, ids))
        return places

    def _canvas(self, read: Read, first: int, canvases: CanvasesByText) -> SeededCanvas:
        context = read.token_ids if read.context_ids is None else read.context_ids
        before, tokens = context[:first], read.token_ids[first : first + self._length]
        key = before.tobytes(), tokens.tobytes(), read.cache_salt
        return canvases.setdefault(key, SeededCanvas(before, tokens, read.cache_salt))

    def _ask(self, questions: Iterable[tuple[SeededCanvas, list[int]]]) -> None:
        pairs = list(questions)
        requests = [canvas.request(self._model, ids) for canvas, ids in pairs]
        answers = self._connection.ask_all("/v1/completions", CanvasAnswer, requests)
        for (canvas, _), answer in zip(pairs, answers, strict=True):
            canvas.note(answer)

    def _write(self, reads: Sequence[Read]) -> list[Reading]:
        """Return what vLLM writes at the positions of each Read: its answer, and behind
        the end the same end up to the canvas's border.
        """
        requests = [
            completion(
                self._model,
                read.token_ids[: read.positions[0]],
                len(read.positions),
                read.cache_salt,
            )
            for read in reads
        ]
        answers = self._connection.ask_all("/v1/completions", CanvasAnswer, requests)
        return [_written(*pair) for pair in zip(reads, answers, strict=True)]


def _is_hidden(read: Read) -> bool:
    return isinstance(read.readout, Candidates) and len(read.positions) > 0


def _written(read: Read, answer: CanvasAnswer) -> Reading:
    num_tokens, choice = len(read.positions), answer.choice
    token_ids, logprobs = choice.logprobs.written()
    num_more = num_tokens - len(token_ids)
    if not token_ids or num_more < 0 or (num_more and choice.finish_reason != "stop"):
        raise ModelOutputError(
            f"the server wrote {len(token_ids)} of {num_tokens} tokens of a canvas and no end"
        )
    ids = np.array(token_ids + token_ids[-1:] * num_more)
    values = np.array(logprobs + [0.0] * num_more, np.float32)
    return Reading(ids, values, np.exp(values, dtype=np.float64))


def _reading(read: Read, places: list[CanvasRow]) -> Reading:
    if not places:
        return Reading.empty()
    count = read.readout.k if isinstance(read.readout, TopLogProbs) else 0
    ids = [canvas.likeliest(row, count) + chosen for canvas, row, chosen in places]
    logprobs = [
        [canvas.logprob(row, token_id) for token_id in tokens]
        for (canvas, row, _), tokens in zip(places, ids, strict=True)
    ]
    shape = (len(places),) if isinstance(read.readout, TokenLogProbs) else (len(places), -1)
    return Reading(
        np.array(ids, np.int64).reshape(shape), np.array(logprobs, np.float32).reshape(shape)
    )
