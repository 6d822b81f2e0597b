"""What may be asked of an auto-regressive model on vLLM."""

from __future__ import annotations

from dise_core.errors import InputError
from dise_core.reading import Read, TokenLogProbs


def check_own_tokens(read: Read) -> None:
    """Raise InputError unless the Read asks for the log-probabilities of tokens that stand in its text."""
    if not isinstance(read.readout, TokenLogProbs) or (read.readout.targets != read.token_ids[read.positions]).any():
        raise InputError("a judge on vLLM tells the log-probabilities of a text's own tokens, nothing else", "logprobs")
    if len(read.positions) and read.positions.min() == 0:
        raise InputError("an auto-regressive model has no answer for the first token of a text; give a prompt", "prompt")
