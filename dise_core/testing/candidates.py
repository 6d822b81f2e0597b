"""What a predictor answers to Candidates, beside naive readouts of reference rows."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from dise_core.arrays import Floats, Ids
from dise_core.models.predictor import MaskPredictor
from dise_core.noise import Noise
from dise_core.plans.reading import Read
from dise_core.plans.readouts import Candidates
from dise_core.testing.answers import ask
from dise_core.testing.promises import expect, gap_between
from dise_core.testing.toy_model import naive_readout


def check_candidates(predictor: MaskPredictor, read: Read, rows: Floats, tolerance: float) -> None:
    """Check tokens, log-probabilities and confidences at a Read's positions, whose
    log-probabilities are rows [M, V]. The uniform numbers may be those of the text behind
    a start token, which an adapter puts before it.
    """
    mask_id = predictor.info.mask_token_id
    longer = np.append(read.token_ids[:1], read.token_ids)
    behind = replace(read, token_ids=longer, positions=read.positions + 1)
    for name, readout in _candidates(rows, () if mask_id is None else (mask_id,)):
        question = replace(read, readout=readout)
        [answer] = ask(predictor, [question])
        expected, is_near = naive_readout(rows, question), False
        for framed in (read, behind) if readout.is_drawn else (read,):
            drawn = replace(framed, readout=readout)
            if not is_near and _is_near(rows, drawn, answer.token_ids, tolerance):
                expected, is_near = naive_readout(rows, drawn), True
        if not is_near:
            ignored = _ignored(predictor, question, rows, answer.token_ids) or name
            raise AssertionError(
                f"Candidates must heed {ignored}: the tokens are {expected.token_ids}, "
                f"not {answer.token_ids}"
            )
        is_same = answer.token_ids == expected.token_ids
        gap = gap_between(answer.logprobs[is_same], expected.logprobs[is_same])
        expect(
            gap <= 10 * tolerance,
            "log-probabilities of Candidates are those of the untempered softmax(logits), without "
            f"bias: beside {name} they are {expected.logprobs}, not {answer.logprobs}",
        )
        gap = gap_between(answer.confidences[is_same], expected.confidences[is_same])
        expect(
            gap <= 10 * tolerance,
            f"Candidates must heed {name}: the confidences are {expected.confidences}, "
            f"not {answer.confidences}",
        )


def _candidates(rows: Floats, forbidden: tuple[int, ...]) -> Iterator[tuple[str, Candidates]]:
    """Yield questions that are answered otherwise where what the name says is ignored,
    though all before it are heeded.
    """
    order = np.argsort(-rows[0], kind="stable").tolist()
    best, second, *_ = (token for token in order if token not in forbidden)
    more = float(min(rows[0, best] - rows[0, second], 100.0)) + 1.0
    plain = Candidates(forbidden=forbidden)
    yield "the likeliest token", plain
    yield "forbidden", Candidates(forbidden=(*forbidden, best))
    yield "allowed", replace(plain, allowed=(second,))
    yield "bias", replace(plain, bias=((second, more),))
    yield "unranked", replace(plain, unranked=(best,))
    yield "confidence 'entropy'", replace(plain, confidence="entropy")
    yield "confidence 'margin'", replace(plain, confidence="margin")
    drawn = Candidates(2.0, noise=Noise(5), forbidden=forbidden)
    yield "the temperature", drawn
    yield "top_p", replace(drawn, top_p=0.7)
    yield "top_k", replace(drawn, top_k=2)
    yield "is_tempered", replace(drawn, is_tempered=True)


def _ignored(predictor: MaskPredictor, read: Read, rows: Floats, token_ids: Ids) -> str:
    """Return what else was ignored where tokens, int64 [M], are wrong; "" if nothing."""
    readout = read.readout
    assert isinstance(readout, Candidates)
    greedy = replace(read, readout=replace(readout, temperature=0.0))
    if not readout.is_drawn or np.array_equal(naive_readout(rows, greedy).token_ids, token_ids):
        return ""
    [again] = ask(predictor, [replace(read, readout=replace(readout, noise=Noise(6)))])
    is_fixed = np.array_equal(again.token_ids, token_ids)
    return "the noise, whose seed changes no token" if is_fixed else ""


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
