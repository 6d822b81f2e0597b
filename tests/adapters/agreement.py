"""What a loaded model answers, and whether as an independent one."""

from typing import Any

import numpy as np

from dise_core import LLM, Distribution, Ids, LogProbs, Read


def random_texts(vocab_size: int, *lengths: int) -> list[Ids]:
    """Return texts of these lengths."""
    random = np.random.default_rng(0)
    return [random.integers(0, vocab_size, length) for length in lengths]


def assert_agrees(llm: LLM, reference: Any, texts: list[Ids], error: float = 1e-5) -> None:
    """Assert that every log-probability of the texts, read together, is the reference's of one
    text, which end tokens complete where the model attends in blocks.
    """
    info = llm.predictor.info
    reads = [Read(ids, np.arange(len(ids)), Distribution()) for ids in texts]
    for ids, reading in zip(texts, llm.predictor.read(reads), strict=True):
        padding = -len(ids) % (info.block_length or 1)
        expected = reference.logprobs([*ids.tolist(), *[info.special.eos_id] * padding]).numpy()
        assert np.abs(reading.logprobs - expected[: len(ids)]).max() < error


def logprobs(llm: LLM) -> LogProbs:
    """Return all log-probabilities of a text of forty tokens, float32 [40, V]."""
    ids = np.arange(2, 42)
    [reading] = llm.predictor.read([Read(ids, np.arange(40), Distribution())])
    return reading.logprobs
