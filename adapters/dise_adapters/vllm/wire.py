"""The wire format between DiSE and a vLLM engine: Reads as plain JSON, and their Readings as one
float32 vector per text.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dise_adapters.vllm.schemas import MAX_LOGPROB
from dise_core.arrays import Ids
from dise_core.errors import InputError, ModelError, ModelOutputError, PlanError
from dise_core.noise import Noise
from dise_core.odds import log_odds, probabilities
from dise_core.reading import Candidates, Distribution, Read, Reading, TokenLogProbs, TopLogProbs
from dise_core.records import Fields, Record
from dise_core.rows import distinct_rows
from dise_core.sequence import as_ids

Vector = npt.NDArray[np.float32]


class Question(NamedTuple):
    """A text's token ids, its Reads as JSON, and how many numbers answer them."""

    token_ids: list[int]
    asked: list[Record]
    num_numbers: int


TASK = "token_classify"
"""The pooling task of a Read: the only one that returns numbers per token and that both of vLLM's
model runners support.
"""

MAX_READS = 64
"""The most Reads of one text in one request."""

MAX_TOP = 1000
"""The largest k of TopLogProbs."""

WHOLE_VOCABULARY = "distribution"


def read_texts(
    reads: Sequence[Read], vocab_size: int, ask: Callable[[list[Question]], Sequence[Vector]]
) -> list[Reading]:
    """Return the answers in the order of the reads; `ask` answers each text with one vector. Reads
    of one text share a question.
    """
    rows = [
        row
        for row in distinct_rows(reads)
        if any(len(reads[index].positions) for index in row.reads)
    ]
    questions = [
        Question(
            row.token_ids.tolist(),
            [to_wire(reads[index]) for index in row.reads],
            sum(sum(_sizes(reads[index], vocab_size)) for index in row.reads),
        )
        for row in rows
    ]
    readings: dict[int, Reading] = {}
    for row, vector in zip(rows, ask(questions) if rows else (), strict=True):
        answers = unpack(vector, [reads[index] for index in row.reads], vocab_size)
        readings.update(zip(row.reads, answers, strict=True))
    return [readings.get(index) or Reading.of_nothing() for index in range(len(reads))]


def checksum(token_ids: Sequence[int]) -> int:
    """Return a number that tells texts apart, so that an answer can name the text that it is of."""
    return zlib.crc32(np.asarray(token_ids, dtype="<i8").tobytes())


def to_wire(read: Read) -> Record:
    """Return a Read as JSON, without its text. Raises InputError for guidance, which reads two
    texts.
    """
    if read.guidance is not None:
        raise InputError(
            "classifier-free guidance needs the transformers engine; leave out cfg_scale",
            "cfg_scale",
        )
    asked: Record = {"positions": read.positions.tolist()}
    match read.readout:
        case TokenLogProbs(targets):
            return asked | {"readout": "token_logprobs", "targets": targets.tolist()}
        case Candidates() as readout:
            noise = readout.noise
            return asked | {
                "readout": "candidates",
                "temperature": readout.temperature,
                "top_p": readout.top_p,
                "top_k": readout.top_k,
                "noise": None if noise is None else [noise.seed, noise.stream, noise.step],
                "confidence": readout.confidence,
                "forbidden": list(readout.forbidden),
                "is_tempered": readout.is_tempered,
                "unranked": list(readout.unranked),
                "allowed": list(readout.allowed),
                "bias": [list(pair) for pair in readout.bias],
            }
        case TopLogProbs(k):
            return asked | {"readout": "top_logprobs", "k": k}
        case _:
            return asked | {"readout": WHOLE_VOCABULARY}


def from_wire(asked: Fields, token_ids: Ids, vocab_size: int) -> Read:
    """Return the Read that `to_wire` encoded, of a text int64 [N]. Raises InputError for anything
    malformed or out of range.
    """
    try:
        positions = as_ids(asked["positions"])
        if len(positions) and not 0 <= positions.min() <= positions.max() < len(token_ids):
            raise InputError(f"positions must be in 0..{len(token_ids) - 1}", "positions")
        return Read(token_ids, positions, _readout(asked, len(positions), vocab_size))
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError, PlanError) as error:
        raise InputError(f"this is not a read: {type(error).__name__}: {error}", "reads") from error


def _readout(asked: Fields, num_positions: int, vocab_size: int) -> Any:
    match asked["readout"]:
        case "token_logprobs":
            targets = _within(as_ids(asked["targets"]), vocab_size, "targets")
            if len(targets) != num_positions:
                raise InputError(
                    f"{num_positions} positions do not pair up with {len(targets)} targets",
                    "targets",
                )
            return TokenLogProbs(targets)
        case "candidates":
            return _candidates(asked, vocab_size)
        case "top_logprobs":
            if not 1 <= int(asked["k"]) <= MAX_TOP:
                raise InputError(f"k must be in 1..{MAX_TOP}", "k")
            return TopLogProbs(int(asked["k"]))
        case "distribution":
            return Distribution()
    raise InputError(f"unknown readout {asked['readout']!r:.40}", "readout")


def _candidates(asked: Fields, vocab_size: int) -> Candidates:
    noise, temperature = asked.get("noise"), float(asked.get("temperature", 0.0))
    top_p, top_k = float(asked.get("top_p", 1.0)), int(asked.get("top_k", 0))
    if not 0 < top_p <= 1 or top_k < 0:
        raise InputError("top_p must be above 0 and at most 1, and top_k at least 0", "top_p")
    confidence = asked.get("confidence", "probability")
    if confidence not in ("probability", "entropy", "margin") or not 0 <= temperature < np.inf:
        raise InputError(
            "confidence is probability, entropy or margin, and temperature a number from 0", "reads"
        )
    if noise is not None and (
        len(noise) != 3 or not all(0 <= int(number) < 2**64 for number in noise)
    ):
        raise InputError("noise is [seed, stream, step], each below 2**64", "noise")
    return Candidates(
        temperature,
        top_p,
        top_k,
        None if noise is None else Noise(*map(int, noise)),
        confidence,
        _ids(asked, "forbidden", vocab_size),
        bool(asked.get("is_tempered", False)),
        _ids(asked, "unranked", vocab_size),
        _ids(asked, "allowed", vocab_size),
        _bias(asked.get("bias", []), vocab_size),
    )


def _ids(asked: Fields, name: str, vocab_size: int) -> tuple[int, ...]:
    return tuple(_within(as_ids(asked.get(name, [])), vocab_size, name).tolist())


def _bias(pairs: Sequence[tuple[int, float]], vocab_size: int) -> tuple[tuple[int, float], ...]:
    token_ids = _within(as_ids([token for token, _ in pairs]), vocab_size, "bias").tolist()
    biases = [float(bias) for _, bias in pairs]
    if len({*token_ids}) < len(token_ids) or not all(map(math.isfinite, biases)):
        raise InputError("bias is a list of [token id, finite number], each id once", "bias")
    return tuple(zip(token_ids, biases, strict=True))


def _within(ids: Ids, vocab_size: int, name: str) -> Ids:
    if len(ids) and not 0 <= ids.min() <= ids.max() < vocab_size:
        raise InputError(f"{name} must be in 0..{vocab_size - 1}", name)
    return ids


def pack(reads: Sequence[Read], readings: Sequence[Reading]) -> Vector:
    """Return the Readings of one text as one float32 vector. Token ids below 2**24 are exact."""
    parts: list[Any] = [np.zeros(0, np.float32)]
    for read, reading in zip(reads, readings, strict=True):
        if not isinstance(read.readout, TokenLogProbs | Distribution):
            parts.append(reading.token_ids.ravel())
        parts += [
            reading.logprobs.ravel(),
            log_odds(reading.confidences) if _is_probability(read) else reading.confidences,
        ]
    return np.concatenate([np.asarray(part, dtype=np.float32) for part in parts])


def unpack(vector: Vector, reads: Sequence[Read], vocab_size: int) -> list[Reading]:
    """Return the Readings that `pack` packed. Raises ModelError if the vector's length does not fit
    the reads.
    """
    readings, start = [], 0
    for read in reads:
        sizes = _sizes(read, vocab_size)
        *bounds, end = accumulate(sizes, initial=start)
        ids, logprobs, confidences = (
            vector[first : first + size] for first, size in zip(bounds, sizes, strict=True)
        )
        start = end
        if start > len(vector):
            break
        shape, has_ids, _ = _layout(read, vocab_size)
        token_ids = _whole(ids, vocab_size) if has_ids else _implied_ids(read, shape)
        sure = (
            probabilities(confidences) if _is_probability(read) else confidences.astype(np.float64)
        )
        _check_numbers(logprobs, confidences)
        readings.append(Reading(token_ids.reshape(shape), logprobs.reshape(shape), sure))
    if len(readings) < len(reads) or start != len(vector):
        raise ModelError(
            "the vLLM engine refused a read or answered another one; do both sides run the same "
            "version of dise?"
        )
    return readings


def _whole(ids: Vector, vocab_size: int) -> Ids:
    """Return token ids int64. Raises ModelOutputError for what is none."""
    is_id = (ids >= 0) & (ids < vocab_size) & (ids == np.floor(ids))
    if not is_id.all():
        raise ModelOutputError(
            f"the vLLM engine answered {ids[~is_id][0]} as a token id, which is a whole number in "
            f"0..{vocab_size - 1}"
        )
    return ids.astype(np.int64)


def _check_numbers(logprobs: Vector, confidences: Vector) -> None:
    """Raise ModelOutputError for numbers that are no answer. NaN among the log-probabilities is one
    and fails the request that asked.
    """
    if (logprobs > MAX_LOGPROB).any():
        raise ModelOutputError(
            f"the vLLM engine answered {logprobs.max()} as a log-probability, which is at most 0"
        )
    if np.isnan(confidences).any() and not np.isnan(logprobs).any():
        raise ModelOutputError("the vLLM engine answered NaN as a confidence")


def _is_probability(read: Read) -> bool:
    """Return whether the confidences are sent as log-odds, which float32 resolves near 1."""
    return isinstance(read.readout, Candidates) and read.readout.confidence == "probability"


def _layout(read: Read, vocab_size: int) -> tuple[tuple[int, ...], bool, bool]:
    """Return the shape of the log-probabilities, whether token ids are sent with them, and whether
    confidences are.
    """
    rows = len(read.positions)
    match read.readout:
        case TokenLogProbs():
            return (rows,), False, False
        case Candidates():
            return (rows,), True, True
        case TopLogProbs(k):
            return (rows, min(k, vocab_size)), True, False
        case _:
            return (rows, vocab_size), False, False


def _sizes(read: Read, vocab_size: int) -> tuple[int, int, int]:
    """Return how many token ids, log-probabilities and confidences answer a read."""
    shape, has_ids, has_confidences = _layout(read, vocab_size)
    count = math.prod(shape)
    return count * has_ids, count, len(read.positions) * has_confidences


def _implied_ids(read: Read, shape: tuple[int, ...]) -> Ids:
    if isinstance(read.readout, TokenLogProbs):
        return read.readout.targets
    return np.broadcast_to(np.arange(shape[1]), shape)
