"""What the options of experiments are where nobody chose them."""

from dise_core.params.requests import SamplingParams
from dise_core.records import Record

FIXED: Record = {"logprobs": None, "seed": 0}
"""Of single answers: they repeat, and no token is reported on."""

DRAWN: Record = {**FIXED, "temperature": 0.7, "n": 5}
"""Of several answers to a question."""


def params_with(options: Record) -> Record:
    """Return all options of an answer as JSON: these, and the defaults of the others."""
    return SamplingParams(**options).model_dump(mode="json")
