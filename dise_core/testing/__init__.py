"""For plugin authors: a conformance check for each interface, and a small numpy model to
try a strategy on.

    from dise_core.testing import check_scorer


    def test_my_scorer_keeps_its_promises() -> None:
        check_scorer(MyScorer())

A check raises AssertionError, which names the promise that is broken.
"""

from dise_core.testing.conformance import (
    check_constraint,
    check_length_controller,
    check_reviser,
    check_scorer,
    check_selector,
    check_unmasking_policy,
)
from dise_core.testing.engines import check_engine
from dise_core.testing.predictors import check_claims, check_mask_predictor
from dise_core.testing.tokenizers import check_tokenizer
from dise_core.testing.toy_model import ToyPredictor, naive_readout

__all__ = [
    "ToyPredictor", "check_claims", "check_constraint", "check_engine",
    "check_length_controller", "check_mask_predictor", "check_reviser", "check_scorer",
    "check_selector", "check_tokenizer", "check_unmasking_policy", "naive_readout",
]  # fmt: skip
