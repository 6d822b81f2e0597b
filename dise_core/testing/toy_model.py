"""A mask predictor in numpy, written naively and in float64."""

import math
from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from dise_core import MaskPredictor, Read, Reading
from dise_core.arrays import Ids
from dise_core.errors import InputError
from dise_core.models.attention import BIDIRECTIONAL, Attention, Canvases
from dise_core.models.completion import completed
from dise_core.models.info import ModelInfo
from dise_core.models.predictor import Ability
from dise_core.models.tokenizer import FunctionTool, Message, Tokenizer
from dise_core.params.engine import EngineConfig
from dise_core.plans.readouts import Candidates, Distribution, TokenLogProbs, TopLogProbs
from dise_core.sequence import SpecialTokens

Logits = npt.NDArray[np.float64]

VOCAB_SIZE = 12
END, MASK = 10, 11
SPECIAL = SpecialTokens(MASK, frozenset({END}), END)
LETTERS = "abcdefghij"


class LetterTokenizer(Tokenizer):
    """One token per letter: a-j, then <end> and <mask>."""

    @property
    def has_chat_template(self) -> bool:
        return False

    def encode(self, text: str) -> Ids:
        for letter in text:
            if letter not in LETTERS:
                raise InputError(f"the model's vocabulary has no {letter!r}")
        return np.array([LETTERS.index(letter) for letter in text], dtype=np.int64)

    def chat_text(
        self,
        messages: Sequence[Message],
        add_generation_prompt: bool = True,
        tools: Sequence[FunctionTool] = (),
    ) -> str:
        raise NotImplementedError

    @property
    def start_ids(self) -> Ids:
        return np.zeros(0, dtype=np.int64)

    def decode(self, ids: Ids) -> str:
        return "".join(LETTERS[i] for i in ids if i < END)

    def token_text(self, token_id: int) -> str:
        names: list[str] = [*LETTERS, "<end>", "<mask>"]
        return names[token_id]

    def token_bytes(self, token_id: int) -> bytes | None:
        return LETTERS[token_id].encode() if 0 <= token_id < END else None


class ToyPredictor(MaskPredictor):
    """A mask predictor whose logits come from a fixed random network with one attention
    layer.

    `batches` records the token ids of each Read of each call.
    """

    heeds: ClassVar[frozenset[str] | None] = frozenset()
    abilities: frozenset[Ability] = frozenset({"two-stream", "shadow"})

    def __init__(
        self, max_length: int = 40, seed: int = 0, attention: Attention = BIDIRECTIONAL
    ) -> None:
        generator = np.random.default_rng(seed)
        self.info = ModelInfo("toy", VOCAB_SIZE, max_length, SPECIAL, attention)
        if isinstance(attention, Canvases):
            self.abilities = frozenset({"two-stream"})
        self.tokenizer = LetterTokenizer()
        self.batches: list[list[Ids]] = []
        self._embedding = generator.normal(size=(VOCAB_SIZE, 16))
        self._positions = generator.normal(size=(max_length + 1, 16))
        self._head = generator.normal(size=(16, VOCAB_SIZE))

    @classmethod
    def claims(cls, model: str, revision: str | None = None) -> bool:
        return model == "toy"

    @classmethod
    def load(cls, model: str, config: EngineConfig) -> Self:
        return cls()

    def logits(self, ids: Ids, start: int = 0) -> Logits:
        """Return float64 logits [N, V]. A row depends on all that its position sees.
        start: where canvases begin.
        """
        embedded = self._positions[: len(ids)]
        positions = np.arange(len(ids)) - start
        allowed = self.info.attention.allows(positions, positions)
        heard = np.tanh(self._embedding[ids] * embedded)
        context = allowed @ heard / allowed.sum(axis=1, keepdims=True)
        logits: Logits = np.tanh(self._embedding[ids] + embedded + 3 * context) @ self._head
        return logits

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        self.batches.append([read.token_ids for read in reads])
        return [self._answer(completed(read, self.info)) for read in reads]

    def _answer(self, read: Read) -> Reading:
        logits = self._logits_at(read, read.token_ids, read.context_ids)
        if (guidance := read.guidance) is not None:
            context = None if read.context_ids is None else guidance.context_ids
            bare = self._logits_at(read, guidance.token_ids, context)
            with np.errstate(invalid="ignore"):
                guided = bare + (guidance.scale + 1) * (logits - bare)
            logits = np.where(np.isneginf(bare), bare, guided)
        return naive_readout(logits, read)

    def _logits_at(self, read: Read, ids: Ids, context: Ids | None) -> Logits:
        if context is None and not read.shadow:
            return self.logits(ids)[read.positions]
        rows, blocks = [], self.info.blocks(read.start)
        logits = partial(self.logits, start=read.start) if read.start and blocks else self.logits
        for position in read.positions:
            if context is None:  # in a single layer one mask is a shadow
                text = np.where(np.arange(len(ids)) == position, MASK, ids)
            else:
                assert blocks is not None
                start = blocks.start_of(position)
                text = np.concatenate([context[:start], ids[start:]])
            rows.append(logits(text)[position])
        return np.array(rows).reshape(len(rows), VOCAB_SIZE)


@np.errstate(invalid="ignore")  # a NaN is reported by whoever takes the Reading
def naive_readout(logits: Logits, read: Read) -> Reading:
    """Return the answer to a Read from logits [M, V], by the plainest means."""
    logprobs = _naive_logprobs(logits.astype(np.float64))
    match readout := read.readout:
        case TokenLogProbs():
            values = logprobs[np.arange(len(logprobs)), readout.targets]
            return Reading(readout.targets, values.astype(np.float32))
        case TopLogProbs():
            return _naive_top(logprobs, readout)
        case Distribution():
            everything = np.tile(np.arange(logits.shape[1]), (len(logits), 1))
            return Reading(everything, logprobs.astype(np.float32))
        case Candidates():
            return _naive_candidates(logits, logprobs, readout, read.positions)


def _naive_logprobs(logits: Logits) -> Logits:
    """Return log softmax of each row, the likeliest token's by the sum of all others."""
    likeliest = logits.argmax(axis=1)[:, None]
    shifted = logits - np.take_along_axis(logits, likeliest, 1)
    others = np.exp(shifted)
    np.put_along_axis(others, likeliest, 0.0, 1)
    logprobs: Logits = shifted - np.log1p(others.sum(axis=1, keepdims=True))
    return logprobs


def _naive_top(logprobs: Logits, readout: TopLogProbs) -> Reading:
    likeliest = np.argsort(-logprobs, axis=1, kind="stable")[:, : readout.k]
    ids = np.column_stack([likeliest, readout.named(len(logprobs))])
    entropies = (np.exp(logprobs) * np.maximum(logprobs, -1e3)).sum(axis=1)
    return Reading(
        ids,
        np.take_along_axis(logprobs, ids, 1).astype(np.float32),
        entropies if readout.with_entropy else np.zeros(0),
    )


def _naive_candidates(
    logits: Logits, logprobs: Logits, readout: Candidates, positions: Ids
) -> Reading:
    tokens, confidences, divisor = [], [], readout.divisor
    forbidden, named = frozenset(readout.forbidden), frozenset(readout.allowed)
    for row, (position, row_logprobs) in enumerate(zip(positions, logprobs, strict=True)):
        bias = dict(readout.bias)
        allowed = {
            i: x + bias.get(i, 0.0)
            for i, x in enumerate(logits[row].tolist())
            if i not in forbidden and (not named or i in named)
        }
        best_first = sorted(allowed, key=lambda i: -allowed[i])
        token = best_first[0]
        drawn_from = _naive_filter({i: allowed[i] / divisor for i in best_first}, readout)
        if readout.is_drawn:
            assert readout.noise is not None
            token = _naive_draw(drawn_from, float(readout.noise.uniforms(np.array([position]))[0]))
        untempered = dict(enumerate(np.exp(row_logprobs).tolist()))
        tokens.append(token)
        ranked_by = drawn_from if readout.is_tempered else untempered
        confidences.append(_naive_confidence(ranked_by, token, readout))
    token_ids = np.array(tokens, dtype=np.int64)
    token_logprobs = logprobs[np.arange(len(token_ids)), token_ids].astype(np.float32)
    return Reading(token_ids, token_logprobs, np.array(confidences))


def _naive_confidence(probabilities: dict[int, float], token: int, readout: Candidates) -> float:
    unranked = frozenset(readout.unranked)
    ranked = {i: p for i, p in probabilities.items() if i not in unranked}
    if token not in ranked:
        return 0.0 if readout.confidence == "probability" else -math.inf
    total = sum(ranked.values())
    shares = {i: p / total for i, p in ranked.items()}
    first, second = (*sorted(shares.values(), reverse=True), 0.0)[:2]
    return {
        "probability": shares[token],
        "margin": first - second,
        "entropy": sum(p * math.log(p) for p in shares.values() if p > 0),
    }[readout.confidence]


def _naive_filter(best_first: dict[int, float], readout: Candidates) -> dict[int, float]:
    remaining = list(best_first)[: readout.top_k or None]
    weights = {i: math.exp(best_first[i] - best_first[remaining[0]]) for i in remaining}
    total = sum(weights.values())
    nucleus, before = [], 0.0
    for i in remaining:
        if before / total < readout.top_p:
            nucleus.append(i)
        before += weights[i]
    mass = sum(weights[i] for i in nucleus)
    return {i: weights[i] / mass for i in nucleus}


def _naive_draw(probabilities: dict[int, float], u: float) -> int:
    running = 0.0
    for i in sorted(probabilities):
        running += probabilities[i]
        if running > u:
            return i
    return max(probabilities)
