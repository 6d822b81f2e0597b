"""The smallest door: our plans in a loop that is not ours, on a plain transformers model.

A plan yields Reads, "what do you say at these positions of this text?", and is sent their Readings.
So a framework with a model and a loop of its own needs one function that answers Reads, and no
engine of ours.

python examples/embedding/own_loop.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from dise_core import Read, Reading, TokenLogProbs, TokenSequence, drive, installed_catalog


def reads_of(model: Any) -> Callable[[Sequence[Read]], list[Reading]]:
    """Return a function that answers Reads of log-probabilities with a bidirectional transformers
    model, one by one.
    """

    @torch.inference_mode()
    def read(reads: Sequence[Read]) -> list[Reading]:
        readings = []
        for read in reads:
            assert isinstance(read.readout, TokenLogProbs)
            logits = model(torch.from_numpy(read.token_ids)[None]).logits[0, read.positions].float()
            targets = torch.from_numpy(read.readout.targets)
            logprobs = torch.log_softmax(logits, dim=-1).gather(-1, targets[:, None])[:, 0]
            readings.append(Reading(read.readout.targets, logprobs.numpy()))
        return readings

    return read


def confidence(model: Any, prompt: Sequence[int], response: Sequence[int]) -> float:
    """Return DiSE of the response, in nats, from a loop that is not ours."""
    sequence = TokenSequence(np.array([*prompt, *response]), len(prompt))
    catalog = installed_catalog()
    plan = catalog.scorer("dise").score(sequence, catalog.selector("response"))
    return drive(plan, reads_of(model)).value


def main() -> None:
    """Score one text with a model of random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    shape = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
    }
    model = LlamaForCausalLM(LlamaConfig(vocab_size=100, is_causal=False, **shape)).eval()
    print(f"{confidence(model, [1, 2, 3], [4, 5, 6]):.4f}")


if __name__ == "__main__":
    main()
