"""The progress of a response, denoising step by denoising step, for streaming."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np

from dise_core.arrays import Ids, LogProbs, Mask
from dise_core.models.pieces import BROKEN, pieces
from dise_core.models.predictor import MaskPredictor
from dise_core.plans.reading import Canvas, Read


class CanvasToken(NamedTuple):
    """One committed token. position: in the response, counted from 0."""

    position: int
    id: int
    text: str
    is_end: bool


@dataclass(frozen=True, slots=True)
class CanvasUpdate:
    """What one denoising step changed in the canvas of a response.

    index: which of the request's samples. committed: the tokens that are new since the
    last update; those of the last step come with the answer. A token that is part of a
    character comes again when another part is committed. num_tokens: the canvas's length.
    text: all text before the first mask. settled: the part of `text` that no later step
    changes: all of it, "" where the length controller or a reviser may rewrite the
    canvas, the finished blocks where the policy edits.
    is_fresh: forget the tokens committed before. scored: positions in the response, with
    the log-probabilities of regenerating their tokens, of blocks finished since the last
    update, or on a fresh canvas of all. logprobs: the log-probability that each of the
    `committed` had when it was written, None where that is not known.
    """

    index: int
    committed: tuple[CanvasToken, ...]
    num_tokens: int
    text: str
    settled: str
    is_fresh: bool
    scored: tuple[tuple[int, float], ...] = ()
    logprobs: tuple[float | None, ...] = ()


class CanvasStream:
    """The canvases of one request's responses, as they were last seen."""

    def __init__(self, predictor: MaskPredictor) -> None:
        self._predictor = predictor
        self._last: dict[int, Ids] = {}
        self._scored: dict[int, LogProbs] = {}

    def updates(self, reads: Sequence[Read]) -> Iterator[CanvasUpdate]:
        """Yield an update for each canvas that changed since the last call."""
        for read in reads:
            if read.canvas is not None and (update := self._update(read, read.canvas)) is not None:
                yield update

    def _update(self, read: Read, canvas: Canvas) -> CanvasUpdate | None:
        info, tokenizer = self._predictor.info, self._predictor.tokenizer
        now = read.token_ids[canvas.start : canvas.stop]
        was_mask, is_mask = self._were_masks(canvas.sample, now), now == info.special.mask_id
        self._last[canvas.sample] = now
        if is_fresh := was_mask is None:
            self._scored.pop(canvas.sample, None)
        is_new = ~is_mask if was_mask is None else ~is_mask & was_mask
        scored = self._new_scores(canvas)
        if not is_new.any() and not is_fresh and not scored:
            return None
        text = tokenizer.decode(now[: np.argmax(is_mask)] if is_mask.any() else now)
        settled = text if canvas.is_settled else ""
        if settled and canvas.settled is not None:
            settled = tokenizer.decode(now[: max(canvas.settled - canvas.start, 0)])
        is_end, texts = info.special.is_end(now), self._texts(now, np.flatnonzero(is_new))
        committed = tuple(
            CanvasToken(at, int(now[at]), texts[at], bool(is_end[at])) for at in sorted(texts)
        )
        logprobs = _when_written(canvas, committed)
        return CanvasUpdate(
            canvas.sample, committed, len(now), text, settled, is_fresh, scored, logprobs
        )

    def _were_masks(self, sample: int, now: Ids) -> Mask | None:
        """Return which of a canvas's tokens, int64 [R], were masks when it was last seen,
        also where it has grown by a block; None if it is no continuation of that one.
        """
        info, before = self._predictor.info, self._last.get(sample)
        if before is None:
            return None
        if info.block_length is not None and len(before) < len(now):
            before = np.append(before, np.full(len(now) - len(before), info.special.mask_id))
        if len(before) != len(now):
            return None
        were_masks: Mask = before == info.special.mask_id
        return were_masks if (were_masks | (before == now)).all() else None

    def _new_scores(self, canvas: Canvas) -> tuple[tuple[int, float], ...]:
        now = canvas.logprobs
        if now is None:
            return ()
        before, logprobs = self._scored.get(canvas.sample, now[:0]), np.full(len(now), np.nan)
        logprobs[: len(before)] = before[: len(now)]
        self._scored[canvas.sample] = now.copy()
        positions = np.flatnonzero(~np.isnan(now) & (now != logprobs))
        return tuple(zip(positions.tolist(), now[positions].tolist(), strict=True))

    def _texts(self, ids: Ids, positions: Ids) -> dict[int, str]:
        """Return the texts of tokens, and of those that share a character with them."""
        tokenizer = self._predictor.tokenizer
        texts = {at: tokenizer.token_text(int(ids[at])) for at in positions.tolist()}
        if not any(BROKEN in text for text in texts.values()):
            return texts
        mask_id = self._predictor.info.special.mask_id
        for is_part, run in groupby(
            range(len(ids)),
            lambda at: ids[at] != mask_id and BROKEN in tokenizer.token_text(int(ids[at])),
        ):
            span = list(run)
            if is_part and not texts.keys().isdisjoint(span):
                texts |= zip(span, pieces(tokenizer, ids[span]), strict=True)
        return texts


def _when_written(canvas: Canvas, tokens: Sequence[CanvasToken]) -> tuple[float | None, ...]:
    if canvas.written is None:
        return (None,) * len(tokens)
    logprobs = (float(canvas.written[token.position]) for token in tokens)
    return tuple(None if math.isnan(logprob) else logprob for logprob in logprobs)
