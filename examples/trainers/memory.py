"""Prints the peak memory of a process that takes one gradient, for 1 and 8 masks: by
autograd through an Estimate, by its `backward`, and by a loop that keeps all activations.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
from typing import Any

import numpy as np
import torch
from dise_trainers import Estimate, logits_of, terms_of
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM

from dise_core import Terms, TokenLogProbs

VOCAB, MASK, LENGTH = 2000, 1999, 1000
WAYS = ("autograd", "backward", "kept")


def kept(module: Any, terms: Terms) -> Tensor:
    """Return the value of one sample, all of whose forward passes are kept."""
    value = torch.zeros((), dtype=torch.float64)
    for read, weights in zip(terms.reads, terms.weights, strict=True):
        assert isinstance(read.readout, TokenLogProbs)
        targets = torch.from_numpy(read.readout.targets)[:, None]
        text = torch.from_numpy(read.token_ids)
        rows = logits_of(module, text[None])[0, read.positions]
        logprobs = rows.log_softmax(-1).gather(1, targets)[:, 0]
        value = value + (torch.from_numpy(weights) * logprobs).sum()
    return value


def take_gradient(way: str, module: Any, terms: Terms) -> None:
    """Add the gradient of one sample's value to the weights' own."""
    if way == "kept":
        torch.autograd.backward(kept(module, terms))
    elif way == "autograd":
        torch.autograd.backward(Estimate()(module, [terms]))
    else:
        Estimate().backward(module, [terms], torch.ones(1))


def grown(way: str, num_masks: int) -> float:
    """Return by how many MB a gradient makes this process larger than its module did."""
    config = Qwen2Config(
        vocab_size=VOCAB, hidden_size=192, intermediate_size=512, num_hidden_layers=6,
        num_attention_heads=6, num_key_value_heads=6, is_causal=False, use_cache=False,
    )  # fmt: skip
    module = Qwen2ForCausalLM(config)
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    ids = np.random.default_rng(0).integers(0, MASK, LENGTH)
    canvases = np.full((num_masks, LENGTH), MASK)
    terms = terms_of(ids, canvases, np.ones((num_masks, LENGTH)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    take_gradient(way, module, terms)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def main() -> None:
    """Print the table, each figure from a process of its own."""
    # What is freed goes back to the system; else the allocator's holes would count.
    os.environ |= {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    context = multiprocessing.get_context("spawn")
    print("masks" + "".join(f"{way + ', MB':>15}" for way in WAYS))
    for num_masks in (1, 8):
        figures = []
        for way in WAYS:
            with context.Pool(1) as pool:
                figures.append(pool.apply(grown, (way, num_masks)))
        print(f"{num_masks:5}" + "".join(f"{figure:15.0f}" for figure in figures))


if __name__ == "__main__":
    main()
