"""The conformance check of revisers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from dise_core.checks import checked_revision
from dise_core.cost import count_nfe
from dise_core.denoise import Denoiser
from dise_core.errors import PluginError
from dise_core.interfaces import Reviser
from dise_core.model import BlockCausal, MaskPredictor, ModelInfo
from dise_core.noise import Noise
from dise_core.outputs import Generation
from dise_core.params import SamplingParams
from dise_core.reading import drive
from dise_core.scoring import SequenceScorer
from dise_core.sequence import TokenSequence
from dise_core.testing.conformance import _Everything, _is_close, _Regenerated, _Surest, _texts
from dise_core.testing.promises import expect
from dise_core.testing.toy_model import ToyPredictor


def check_reviser(
    reviser: Reviser, predictor: MaskPredictor | None = None, tolerance: float = 0.0
) -> None:
    """Check that the reviser returns a text that fits, tells of each change, evaluates the text
    that it returns, leaves the one that it was given as it was, and repeats itself.

    predictor: the model that answers; None: toy models with full and with block-causal attention.
    tolerance: how far scores of one text may differ, in nats.
    """
    toys = [ToyPredictor(), ToyPredictor(attention=BlockCausal(4))]
    for model in toys if predictor is None else [predictor]:
        for text in _responses(model.info):
            _check_revised(reviser, model, text, tolerance)


def _check_revised(
    reviser: Reviser, predictor: MaskPredictor, text: TokenSequence, tolerance: float
) -> None:
    scorer = SequenceScorer(_Regenerated(), _Everything())
    given = Generation(text, drive(scorer.evaluate(text), predictor.read))
    most = max(len(text.response), 1)
    params = SamplingParams(max_tokens=most, block_length=4, temperature=1.0)
    denoiser = Denoiser(predictor.info, _Surest(), Noise(0), params, is_revised=True)
    before = text.ids.copy()
    result, nfe = drive(count_nfe(reviser.revise(given, denoiser, scorer)), predictor.read)
    expect(np.array_equal(before, text.ids), "revise must leave the given text unchanged")
    try:
        checked_revision(reviser, result, text, predictor.info, most)
    except PluginError as error:
        raise AssertionError(str(error)) from error
    again = drive(scorer.evaluate(result.sequence), predictor.read)
    expect(
        _is_close(again.score.value, result.evaluation.score.value, tolerance),
        "the evaluation must be that of the text that is returned",
    )
    expect(
        sum(revision.nfe for revision in result.revisions) <= nfe,
        f"the revisions must not count more than the {nfe} passes made",
    )
    positions = [token.position for revision in result.revisions for token in revision.tokens]
    expect(
        all(0 <= position < len(text.response) for position in positions),
        f"a revised token must be one of the given response: {positions}",
    )
    repeated = drive(reviser.revise(given, denoiser, scorer), predictor.read)
    expect(
        np.array_equal(repeated.sequence.ids, result.sequence.ids),
        "the same response must be revised the same",
    )


def _responses(info: ModelInfo) -> Iterator[TokenSequence]:
    """Yield texts with responses of several lengths, an empty one among them."""
    for text in _texts(info.special, info.block_origin):
        yield replace(text, max_length=info.max_length)
    yield TokenSequence.of([1, 2, 3], [], info.special, 4, info.max_length, info.block_origin)
