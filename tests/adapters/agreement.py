"""What a loaded model answers, and whether as an independent one."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from dise_core import LLM, Distribution, Ids, LogProbs, Read, RequestOutput

ROUNDED = 1e-4
"""How far apart log-probabilities of a tiny model in float32 may be where the kernels of two
processors, or of two shapes, add in other orders: some hundred times the last bit of its logits. A
wrong weight, position or mask moves them by hundredths.
"""


def random_texts(vocab_size: int, *lengths: int) -> list[Ids]:
    """Return texts of these lengths."""
    random = np.random.default_rng(0)
    return [random.integers(0, vocab_size, length) for length in lengths]


def assert_agrees(llm: LLM, reference: Any, texts: list[Ids], error: float = ROUNDED) -> None:
    """Assert that every log-probability of the texts, read together, is the reference's of one
    text, which end tokens complete where the model attends in blocks.
    """
    info = llm.predictor.info
    reads = [Read(ids, np.arange(len(ids)), Distribution()) for ids in texts]
    for ids, reading in zip(texts, llm.predictor.read(reads), strict=True):
        padding = -len(ids) % (info.block_length or 1)
        expected = reference.logprobs([*ids.tolist(), *[info.special.eos_id] * padding]).numpy()
        assert np.abs(reading.logprobs - expected[: len(ids)]).max() < error


def assert_alike(
    ours: Sequence[RequestOutput], theirs: Sequence[RequestOutput], error: float = ROUNDED
) -> None:
    """Assert that answers have the same tokens, and nearly the same scores."""
    for answer, expected in zip(ours, theirs, strict=True):
        for one, other in zip(answer.outputs, expected.outputs, strict=True):
            assert one.token_ids == other.token_ids
            assert one.score.value == pytest.approx(other.score.value, abs=error)


def logprobs(llm: LLM) -> LogProbs:
    """Return all log-probabilities of a text of forty tokens, float32 [40, V]."""
    ids = np.arange(2, 42)
    [reading] = llm.predictor.read([Read(ids, np.arange(40), Distribution())])
    return reading.logprobs
