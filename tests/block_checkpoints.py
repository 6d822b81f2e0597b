"""Tiny checkpoints of Qwen2 and Qwen3 that attend in blocks. Only tests use them."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from dise_adapters.families.a2d import A2D_QWEN3
from dise_adapters.families.dream import DREAM
from dise_adapters.predictor import predictor_of
from dise_core import BlockCausal, EngineConfig, MaskPredictor
from dise_core.arrays import Ids, LogProbs
from dise_core.models.attention import Attention
from tests import reference_a2d

BLOCK, END = 4, reference_a2d.PAD

IN_BLOCKS = BlockCausal(BLOCK)

KINDS = ["qwen3", "qwen2"]


def load(
    kind: str, folder: Path, attention: Attention = IN_BLOCKS, **options: object
) -> MaskPredictor:
    family = replace(A2D_QWEN3 if kind == "qwen3" else DREAM, attention=attention)
    return predictor_of(family).load(str(folder), EngineConfig(**options))  # type: ignore[arg-type]


def texts_of(*lengths: int) -> list[Ids]:
    random = np.random.default_rng(0)
    return [random.integers(0, 50, length) for length in lengths]


def assert_exact(found: LogProbs, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-5)  # float32 beside float64
