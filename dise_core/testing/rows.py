"""What a predictor answers about a text, beside naive readouts of reference rows."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dise_core.arrays import Floats, Ids
from dise_core.errors import InputError
from dise_core.models.completion import completed, noise_levels
from dise_core.models.info import ModelInfo
from dise_core.models.predictor import MaskPredictor
from dise_core.plans.reading import Guidance, Read
from dise_core.plans.readouts import Distribution
from dise_core.testing.answers import ask
from dise_core.testing.candidates import check_candidates
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
    _check_later(predictor, read)
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
        f"log-probabilities differ from those of `logits` by {gap}"
        f"{', and are those of the position before' * _is_late(answered, rows, tolerance)}",
    )
    _check_guidance(predictor, read, rows_of, tolerance)
    if "shadow" in predictor.abilities:
        _check_shadows(predictor, read, answered, tolerance)
    few = slice(-4, None)  # naive readouts are slow in a large vocabulary
    read = replace(read, positions=positions[few])
    check_candidates(predictor, read, rows[few], tolerance)


def _logprobs(predictor: MaskPredictor, read: Read) -> Floats:
    """Return the distributions that answer a Read, float64 [M, V]."""
    [reading] = ask(predictor, [read])
    return reading.logprobs.astype(np.float64)


def _reference(info: ModelInfo, read: Read, logits: ReferenceLogits) -> Floats:
    whole = completed(read, info)
    levels = (noise_levels(whole, info),) if info.is_time_conditioned else ()
    rows = logits(whole.token_ids, *levels)[read.positions]
    return naive_readout(rows, read).logprobs.astype(np.float64)


def _is_late(answered: Floats, rows: Floats, tolerance: float) -> bool:
    return len(rows) > 2 and gap_between(answered[1:], rows[:-1]) <= tolerance


def _check_later(predictor: MaskPredictor, read: Read) -> None:
    """Check that the last token changes the answer at a mask before it that sees it."""
    info, place, last = predictor.info, read.positions[:1], len(read.token_ids) - 1
    if info.mask_token_id is None or not info.attention.allows(place, np.array([last])).all():
        return
    ids = read.token_ids.copy()
    ids[place] = info.mask_token_id
    one, other, *_ = (
        _logprobs(predictor, replace(read, token_ids=np.append(ids[:-1], token), positions=place))
        for token in (0, 1, 2)
        if token != info.mask_token_id
    )
    expect(
        not np.array_equal(one, other),
        f"position {place[0]} must see the text's last token, as info.attention, "
        f"{info.attention!r}, says, and it changes nothing: does the network attend causally?",
    )


def _check_noise(predictor: MaskPredictor, read: Read, answered: Floats) -> None:
    if not predictor.info.is_time_conditioned:
        return
    again = _logprobs(predictor, replace(read, noise=0.25))
    expect(
        not np.array_equal(again, answered),
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
        f"unconditional u, both at one noise level: log-probabilities differ by {gap}",
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
