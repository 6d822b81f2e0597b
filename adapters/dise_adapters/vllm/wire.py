"""The wire format of a vLLM engine: Reads as JSON, and one float32 vector per text."""

from __future__ import annotations

import math
import zlib
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import astuple, fields
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    ValidationInfo,
    create_model,
)

from dise_core import Ids, InputError, ModelError, ModelOutputError, Noise, Read, Reader, Reading
from dise_core.arrays import log_odds, probabilities
from dise_core.params.requests import SamplingParams
from dise_core.plans.readouts import (
    DRAWING,
    BiasPairs,
    Candidates,
    Confidence,
    Distribution,
    Readout,
    TokenLogProbs,
    TopLogProbs,
    has_confidences,
)
from dise_core.plans.rows import distinct_rows
from dise_core.sequence import as_ids, check_token_ids

Vector = npt.NDArray[np.float32]

TASK = "token_classify"
"""The pooling task of numbers per token that both of vLLM's runners support."""

MAX_READS = 64
"""The most Reads of one text in one request."""

MAX_TOP = 1000
"""The largest k of TopLogProbs."""

MAX_NAMED = 4096
"""The most ids of TopLogProbs."""

MAX_NUMBERS = 2**24
"""The most numbers in the answer to one request to a server."""

CHOOSES = (Candidates, TopLogProbs)
"""The readouts whose answers hold token ids; of the others they are known."""

MAX_LOGPROB = 1e-3
"""Rounding may put the log-probability of a sure token a little above 0."""


def known_ids(ids: Sequence[int], info: ValidationInfo) -> Ids:
    """Return token ids int64 [N], below the vocabulary's size, the context of `info`."""
    array = as_ids(ids)
    check_token_ids(array, info.context or 0)
    return array


def _each_once(bias: BiasPairs, info: ValidationInfo) -> BiasPairs:
    ids = known_ids([token_id for token_id, _ in bias], info)
    if len(np.unique(ids)) < len(ids):
        raise ValueError("each token id may have one bias")
    return bias


TO_LIST = PlainSerializer(np.ndarray.tolist)

KnownIds = Annotated[Ids, PlainValidator(known_ids), TO_LIST]

AreKnown = AfterValidator(lambda ids, info: tuple(known_ids(ids, info).tolist()))

IdTuple = Annotated[tuple[int, ...], AreKnown]

Word = Annotated[int, Field(ge=0, lt=2**64)]

NoiseWords = Annotated[
    tuple[Word, Word, Word], AfterValidator(lambda words: Noise(*words)), PlainSerializer(astuple)
]


class ReadoutJson(BaseModel):
    """A Read without its text. The fields after the first two are the readout's."""

    model_config = ConfigDict(strict=True, frozen=True, defer_build=True)

    asks_for: ClassVar[type[Readout]]

    positions: Annotated[Ids, PlainValidator(as_ids), TO_LIST]

    def decoded(self, token_ids: Ids) -> Read:
        """Return the Read of a text, int64 [N]. Raises PlanError if it does not fit."""
        settings = {name: value for name, value in self if name not in ("positions", "readout")}
        return Read(token_ids, self.positions, self.asks_for(**settings))


class _TokenLogProbsJson(ReadoutJson):
    asks_for = TokenLogProbs
    readout: Literal["token_logprobs"] = "token_logprobs"
    targets: KnownIds


_Drawing: Any = create_model(  # type: ignore[call-overload]
    "_Drawing",
    __base__=ReadoutJson,
    **{
        name: (f.annotation, f)
        for name, f in SamplingParams.model_fields.items()
        if name in DRAWING
    },
)
"""What requests say of drawing, in their own bounds."""


class _CandidatesJson(_Drawing):  # type: ignore[misc]
    asks_for = Candidates
    readout: Literal["candidates"] = "candidates"
    noise: NoiseWords | None = None
    confidence: Confidence = "probability"
    forbidden: IdTuple = ()
    is_tempered: bool = False
    unranked: IdTuple = ()
    allowed: IdTuple = ()
    bias: Annotated[BiasPairs, AfterValidator(_each_once)] = ()


class _TopLogProbsJson(ReadoutJson):
    asks_for = TopLogProbs
    readout: Literal["top_logprobs"] = "top_logprobs"
    k: int = Field(ge=1, le=MAX_TOP)
    ids: Annotated[tuple[int, ...], Field(max_length=MAX_NAMED), AreKnown] = ()
    targets: KnownIds | None = None
    with_entropy: bool = False


class _DistributionJson(ReadoutJson):
    asks_for = Distribution
    readout: Literal["distribution"] = "distribution"


AnyReadout = _TokenLogProbsJson | _CandidatesJson | _TopLogProbsJson | _DistributionJson

ReadJson = Annotated[AnyReadout, Field(discriminator="readout")]

FORMS = {form.asks_for: form for form in get_args(AnyReadout)}

READS: TypeAdapter[list[ReadJson]] = TypeAdapter(
    list[ReadJson], config=ConfigDict(defer_build=True)
)


class TextQuestion(NamedTuple):
    """A text's token ids, its Reads, and how many numbers answer them."""

    token_ids: list[int]
    reads: list[ReadJson]
    num_numbers: int


class VectorReader(Reader):
    """Answers the Reads of each text with one vector, for which `ask` asks."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size

    @abstractmethod
    def ask(self, questions: list[TextQuestion]) -> Sequence[Vector]:
        """Return the vector that answers each question."""

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        asking = {index for index, read in enumerate(reads) if len(read.positions)}
        rows = [row for row in distinct_rows(reads) if asking.intersection(row.reads)]
        questions = []
        for row in rows:
            forms = [encode(reads[index]) for index in row.reads]
            size = num_numbers([reads[index] for index in row.reads], self._vocab_size)
            questions.append(TextQuestion(row.token_ids.tolist(), forms, size))
        readings: dict[int, Reading] = {}
        for row, vector in zip(rows, self.ask(questions) if rows else (), strict=True):
            answers = unpack(vector, [reads[index] for index in row.reads], self._vocab_size)
            readings.update(zip(row.reads, answers, strict=True))
        return [readings.get(index) or Reading.empty() for index in range(len(reads))]


def checksum(token_ids: Sequence[int] | Ids) -> int:
    """Return a number that tells texts apart, by which an answer names its text."""
    return zlib.crc32(np.asarray(token_ids, dtype="<i8").tobytes())


def encode(read: Read) -> ReadJson:
    """Return a Read without its text. Raises InputError for guidance, of two texts, and
    for a field of the readout that its form lacks, unless it has its default.
    """
    if read.guidance is not None:
        raise InputError(
            "classifier-free guidance needs the transformers engine; leave out cfg_scale",
            "cfg_scale",
        )
    readout, form = read.readout, FORMS[type(read.readout)]
    settings: dict[str, Any] = {}
    for field in fields(readout):
        value = getattr(readout, field.name)
        settings[field.name] = value
    encoded: ReadJson = form.model_construct(positions=read.positions, **settings)
    return encoded


def num_numbers(reads: Sequence[Read], vocab_size: int) -> int:
    """Return how many numbers `pack` makes of the Readings of one text."""
    return sum(sum(_lengths(read, vocab_size)) for read in reads)


def pack(reads: Sequence[Read], readings: Sequence[Reading]) -> Vector:
    """Return a text's Readings as one float32 vector, exact for token ids below 2**24."""
    parts = [np.zeros(0, np.float32)]
    for read, reading in zip(reads, readings, strict=True):
        if isinstance(read.readout, CHOOSES):
            parts.append(reading.token_ids.ravel().astype(np.float32))
        # As a float32, 1 - 1e-9 is 1: all sure candidates would tie, and a policy would commit
        # them by position and not by confidence. Their log-odds, 20.7 here, differ as they should.
        sure = log_odds(reading.confidences) if _is_probability(read) else reading.confidences
        parts += [reading.logprobs.ravel(), sure.astype(np.float32)]
    return np.concatenate(parts, dtype=np.float32)


def unpack(vector: Vector, reads: Sequence[Read], vocab_size: int) -> list[Reading]:
    """Return the Readings that `pack` packed. Raises ModelError for another length."""
    lengths = [_lengths(read, vocab_size) for read in reads]
    if len(vector) != sum(map(sum, lengths)):
        raise ModelError(
            "the vLLM engine refused a read or answered another one; do both sides run the same "
            "version of dise?"
        )
    readings = []
    for read, parts in zip(reads, lengths, strict=True):
        ids, logprobs, sure, vector = np.split(vector, np.cumsum(parts))
        _check_numbers(logprobs, sure)
        shape = read.answer_shape(vocab_size)
        match read.readout:
            case TokenLogProbs(targets):
                token_ids = targets
            case Distribution():
                token_ids = np.broadcast_to(np.arange(vocab_size), shape)
            case _:
                token_ids = _whole(ids, vocab_size).reshape(shape)
        confidences = probabilities(sure) if _is_probability(read) else sure.astype(np.float64)
        readings.append(Reading(token_ids, logprobs.reshape(shape), confidences))
    return readings


def _whole(ids: Vector, vocab_size: int) -> Ids:
    is_id = (ids >= 0) & (ids < vocab_size) & (ids == np.floor(ids))
    if not is_id.all():
        raise ModelOutputError(
            f"the vLLM engine answered {ids[~is_id][0]} as a token id, which is a whole number in "
            f"0..{vocab_size - 1}"
        )
    return ids.astype(np.int64)


def _check_numbers(logprobs: Vector, confidences: Vector) -> None:
    """Raise ModelOutputError for impossible numbers. NaN log-probabilities fail later."""
    if (logprobs > MAX_LOGPROB).any():
        raise ModelOutputError(
            f"the vLLM engine answered {logprobs.max()} as a log-probability, which is at most 0"
        )
    if np.isnan(confidences).any() and not np.isnan(logprobs).any():
        raise ModelOutputError("the vLLM engine answered NaN as a confidence")


def _is_probability(read: Read) -> bool:
    """Return whether confidences are sent as log-odds, which float32 resolves near 1."""
    return isinstance(read.readout, Candidates) and read.readout.confidence == "probability"


def _lengths(read: Read, vocab_size: int) -> tuple[int, int, int]:
    size, readout = math.prod(read.answer_shape(vocab_size)), read.readout
    num_confidences = len(read.positions) * has_confidences(readout)
    return size * isinstance(readout, CHOOSES), size, num_confidences
