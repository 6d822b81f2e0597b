"""What a predictor answers about a text, beside naive readouts of reference rows."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from dise_core.arrays import Floats, Ids
from dise_core.errors import InputError
from dise_core.models.completion import completed, noise_levels
from dise_core.models.info import ModelInfo
from dise_core.models.predictor import MaskPredictor
from dise_core.noise import Noise
from dise_core.plans.reading import Guidance, Read
from dise_core.plans.readouts import Candidates, Distribution
from dise_core.testing.promises import expect, gap_between
from dise_core.testing.toy_model import naive_readout

ReferenceLogits = Callable[..., Floats]
"""Returns reference logits [N, V] of a text, int64 [N]: row i is for the token AT i. Of a
time-conditioned model it is given the noise levels, float64 [N], too.
"""

SCALE = 1.5
"""Of the guidance that is checked."""


def check_rows(
    predictor: MaskPredictor, ids: Ids, tolerance: float, logits: ReferenceLogits | None = None
) -> None:
    """Check what is answered about one text, int64 [N], against reference rows; without
    any against the predictor's own distribution. The others: as in check_mask_predictor.
    """
    positions = np.arange(int(predictor.info.is_autoregressive), len(ids))
    read = Read(ids, positions, Distribution())
    if predictor.info.is_time_conditioned:
        read = replace(read, noise=0.75)
    answered = _logprobs(predictor, read)
    _check_noise(predictor, read, answered)
    _check_completed(predictor, read, answered, tolerance)

    def rows_of(question: Read) -> Floats:
        if logits is None:
            return _logprobs(predictor, question)
        return _reference(predictor.info, question, logits)

    rows = rows_of(read)
    gap = gap_between(answered, rows)
    expect(
        gap <= tolerance,
        "position i must be answered with the distribution for the token AT i: "
        f"log-probabilities differ from those of `logits` by {gap}",
    )
    _check_guidance(predictor, read, rows_of, tolerance)
    if "shadow" in predictor.abilities:
        _check_shadows(predictor, read, answered, tolerance)
    few = slice(-4, None)  # naive readouts are slow in a large vocabulary
    read = replace(read, positions=positions[few])
    _check_candidates(predictor, read, rows[few], tolerance)


def _logprobs(predictor: MaskPredictor, read: Read) -> Floats:
    """Return the distributions that answer a Read, float64 [M, V]."""
    [reading] = predictor.read([read])
    return reading.logprobs.astype(np.float64)


def _reference(info: ModelInfo, read: Read, logits: ReferenceLogits) -> Floats:
    whole = completed(read, info)
    levels = (noise_levels(whole, info),) if info.is_time_conditioned else ()
    rows = logits(whole.token_ids, *levels)[read.positions]
    return naive_readout(rows, read).logprobs.astype(np.float64)


def _check_noise(predictor: MaskPredictor, read: Read, answered: Floats) -> None:
    if not predictor.info.is_time_conditioned:
        return
    other = _logprobs(predictor, replace(read, noise=0.25))
    expect(
        not np.array_equal(other, answered),
        "a time-conditioned model must be read at the Read's noise level, which "
        "noise_levels tells: levels 0.25 and 0.75 are answered alike",
    )


def _check_completed(
    predictor: MaskPredictor, read: Read, answered: Floats, tolerance: float
) -> None:
    whole = completed(read, predictor.info)
    if whole is not read:
        gap = gap_between(answered, _logprobs(predictor, whole))
        expect(
            gap <= tolerance,
            "a text that ends inside a block must be read with end tokens up to the "
            "block's border, and one of uniform noise with drawn tokens, as `completed` "
            f"does: log-probabilities differ by {gap}",
        )


def _check_guidance(
    predictor: MaskPredictor, read: Read, rows_of: Callable[[Read], Floats], tolerance: float
) -> None:
    """Check u + (s + 1)(c - u), but for tokens that neither text allows."""
    bare, special = read.token_ids.copy(), predictor.info.special
    bare[: len(bare) // 2 + 1] = bare[-1] if special.mask_id is None else special.mask_id
    rows, without = rows_of(read), rows_of(replace(read, token_ids=bare))
    is_possible = np.isfinite(rows) & np.isfinite(without)
    with np.errstate(invalid="ignore"):
        guided = np.where(is_possible, without + (SCALE + 1) * (rows - without), -np.inf)
    guided -= np.logaddexp.reduce(guided, axis=1, keepdims=True)
    try:
        answered = _logprobs(predictor, replace(read, guidance=Guidance(bare, SCALE)))
    except InputError:  # what is refused is not ignored
        return
    gap = gap_between(np.where(is_possible, answered, -np.inf), guided)
    expect(
        gap <= tolerance * 2 * (2 * SCALE + 1),
        "guidance must make the logits u + (s + 1)(c - u), of this text's c and the "
        f"unconditional u: log-probabilities differ by {gap}",
    )


def _check_shadows(
    predictor: MaskPredictor, read: Read, answered: Floats, tolerance: float
) -> None:
    """Check that a shadow is the plain answer where a mask stands, and another one where
    a token does whose mask would change the answer at its own position.
    """
    shadows = _logprobs(predictor, replace(read, shadow=True))
    mask_id, gap = predictor.info.special.mask_id, 0.0
    is_masked = read.token_ids[read.positions] == mask_id
    if is_masked.any():
        gap = gap_between(shadows[is_masked], answered[is_masked])
    expect(
        gap <= tolerance,
        f"the shadow of a masked position must be its plain answer: they differ by {gap}",
    )
    [*tokens] = np.flatnonzero(~is_masked)
    if mask_id is None or not tokens:
        return
    row, ids = tokens[-1], read.token_ids.copy()
    ids[read.positions[row]] = mask_id
    masked = _logprobs(predictor, replace(read, token_ids=ids))[row]
    is_moved = gap_between(masked, answered[row]) > 10 * tolerance
    expect(
        not is_moved or gap_between(shadows[row], answered[row]) > tolerance,
        "a shadow must be answered as if its position were masked: it is the plain "
        "answer, which sees the token",
    )


def _candidates(rows: Floats, forbidden: tuple[int, ...]) -> Iterator[tuple[str, Candidates]]:
    """Yield questions that are answered otherwise where what the name says is ignored."""
    order = np.argsort(-rows[0], kind="stable").tolist()
    best, second, *_ = (token for token in order if token not in forbidden)
    more = float(min(rows[0, best] - rows[0, second], 100.0)) + 1.0
    noise = Noise(5)
    drawn = Candidates(2.0, noise=noise, forbidden=forbidden)
    yield "the temperature", drawn
    yield "top_p", replace(drawn, top_p=0.7)
    yield "top_k", replace(drawn, top_k=2)
    yield "is_tempered", replace(drawn, is_tempered=True)
    plain = Candidates(forbidden=forbidden)
    yield "the likeliest token", plain
    yield "forbidden", Candidates(forbidden=(*forbidden, best))
    yield "allowed", replace(plain, allowed=(second,))
    yield "bias", replace(plain, bias=((second, more),))
    yield "unranked", replace(plain, unranked=(best,))
    yield "confidence 'entropy'", replace(plain, confidence="entropy")
    yield "confidence 'margin'", replace(plain, confidence="margin")
    yield "logits", replace(plain, logits=_raised)


def _raised(rows: Any, part: slice) -> Any:
    """Raise a token's logit beyond all others, another one's at each position."""
    for index, row in enumerate(rows, part.start or 0):
        row[index % 3] = row.max() + index % 2 + 1
    return rows


def _check_candidates(predictor: MaskPredictor, read: Read, rows: Floats, tolerance: float) -> None:
    """Check tokens and confidences. The uniform numbers may be those of the text behind a
    start token, which an adapter puts before it.
    """
    mask_id = predictor.info.mask_token_id
    longer = np.append(read.token_ids[:1], read.token_ids)
    behind = replace(read, token_ids=longer, positions=read.positions + 1)
    for name, readout in _candidates(rows, () if mask_id is None else (mask_id,)):
        if readout.logits is not None and "logits" not in predictor.abilities:
            continue
        [answer] = predictor.read([replace(read, readout=readout)])
        expected, is_near = naive_readout(rows, replace(read, readout=readout)), False
        for framed in (read, behind) if readout.is_drawn else (read,):
            question = replace(framed, readout=readout)
            if not is_near and _is_near(rows, question, answer.token_ids, tolerance):
                expected, is_near = naive_readout(rows, question), True
        expect(
            is_near,
            f"Candidates must heed {name}: the tokens are {expected.token_ids}, "
            f"not {answer.token_ids}",
        )
        is_same = answer.token_ids == expected.token_ids
        gap = gap_between(answer.confidences[is_same], expected.confidences[is_same])
        expect(
            gap <= 10 * tolerance,
            f"Candidates must heed {name}: the confidences are {expected.confidences}, "
            f"not {answer.confidences}",
        )


def _is_near(rows: Floats, read: Read, token_ids: Ids, tolerance: float) -> bool:
    """Return whether the tokens, int64 [M], are those of rows within the tolerance, but
    where none has any probability.
    """
    random = np.random.default_rng(0)
    expected = naive_readout(rows, read)
    is_near = (expected.token_ids == token_ids) | np.isneginf(expected.logprobs)
    for _ in range(0 if is_near.all() else 32):
        shaken = rows + random.uniform(-2, 2, rows.shape) * tolerance
        is_near |= naive_readout(shaken, read).token_ids == token_ids
    return bool(is_near.all())
