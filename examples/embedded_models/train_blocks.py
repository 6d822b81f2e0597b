"""Train the embedded block diffusion model on a CPU or GPU and write it as an SDAR checkpoint.

python -m embedded_models.train_blocks --output blocks --steps 3200

A clean and a noisy copy of each text go through one pass.

The clean copy is a finished text under block-causal attention; the noisy copy has masks, sees the
clean copy's earlier blocks and itself within its own. Every block of every text is learnt from at
once (Arriola et al. 2025, "Block Diffusion", section 3).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor
from torch.nn import functional
from transformers import Qwen3Config, Qwen3ForCausalLM

from . import training
from .chat import END, MASK
from .countdown.texts import TOKENIZER, draw_text
from .countdown.tokenizer import VOCABULARY

BLOCK_LENGTH = 8

WIDTHS = (40, 48, 64)
"""Tokens in a row. A text goes into the narrowest that holds it and its end token."""

CONFIG = {
    "architectures": ["SDARForCausalLM"],
    "model_type": "sdar",
    "block_size": BLOCK_LENGTH,
    "hidden_act": "silu",
    "hidden_size": 192,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 6,
    "head_dim": 32,
    "intermediate_size": 512,
    "vocab_size": 32,
    "max_position_embeddings": 512,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mask_token_id": VOCABULARY[MASK],
    "eos_token_id": VOCABULARY[END],
    "pad_token_id": VOCABULARY[END],
    "torch_dtype": "bfloat16",
}


def build_model() -> Qwen3ForCausalLM:
    """Return a Qwen3 of CONFIG's shape with random weights."""
    taken = ("architectures", "model_type", "block_size", "mask_token_id", "rope_theta")
    shape = {name: value for name, value in CONFIG.items() if name not in taken}
    rope = {"rope_type": "default", "rope_theta": CONFIG["rope_theta"]}
    config = Qwen3Config(
        **shape, rope_parameters=rope, use_cache=False, attn_implementation="eager"
    )
    return Qwen3ForCausalLM(config)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one width: true ids [B, W], which of them are the response (with its end tokens), and
    the finished texts as they are shown, some with mistakes.
    """

    ids: Tensor
    is_response: Tensor
    shown: Tensor


def draw_batches(random: Random, size: int, share_of_mistakes: float) -> Iterator[Batch]:
    """Yield batches of `size` rows; a text waits until its width has as many.

    A prompt shorter than a block is drawn again, so that the noisy copies start at the second.
    """
    waiting: dict[int, list[tuple[list[int], list[int], list[int]]]] = defaultdict(list)
    while True:
        is_wrong = random.random() < share_of_mistakes
        prompt, response, shown = draw_text(random, mistaken=is_wrong)
        length = len(prompt) + len(response)
        width = next((width for width in WIDTHS if length < width), None)
        if width is None or len(prompt) < BLOCK_LENGTH:
            continue
        waiting[width].append((prompt, response, shown))
        if len(waiting[width]) == size:
            yield _batch(waiting.pop(width), width)


def _batch(texts: list[tuple[list[int], list[int], list[int]]], width: int) -> Batch:
    """Return the texts as rows. The response counts up to the end of the block that ends it."""
    ids = torch.full((len(texts), width), VOCABULARY[END])
    is_response = torch.zeros(len(texts), width, dtype=torch.bool)
    shown = ids.clone()
    for row, (prompt, response, wrong) in enumerate(texts):
        start, end = len(prompt), len(prompt) + len(response)
        ids[row, :end] = torch.tensor(prompt + response)
        shown[row, :end] = torch.tensor(prompt + wrong)
        is_response[row, start : (end // BLOCK_LENGTH + 1) * BLOCK_LENGTH] = True
    return Batch(ids, is_response, shown)


def two_stream_mask(width: int, first: int) -> Tensor:
    """Return which of [clean 0..width, noisy first..width] sees which: bool [1, 1, N, N]."""
    position = torch.cat([torch.arange(width), torch.arange(first, width)])
    is_noisy = torch.arange(len(position)) >= width
    block = position // BLOCK_LENGTH
    earlier, same = block[:, None] > block, block[:, None] == block
    seen = torch.where(is_noisy, same & is_noisy[:, None], earlier | (same & ~is_noisy[:, None]))
    return torch.zeros(seen.shape).masked_fill(~seen, -torch.inf)[None, None]


def draw_masks(is_response: Tensor) -> tuple[Tensor, Tensor]:
    """Return which response tokens are masked, and the weight 1/t of each: bool and float [B, W].

    t is uniform and drawn for each block of each row; evenly spaced values with one random offset
    lower the variance.
    """
    size, width = is_response.shape
    count = size * width // BLOCK_LENGTH
    t = ((torch.randperm(count) + torch.rand(1)) / count).clamp(min=1e-2).view(size, -1)
    t = t.repeat_interleave(BLOCK_LENGTH, 1)
    is_masked = (torch.rand(size, width) < t) & is_response
    return is_masked, is_masked / t


def loss_of(model: torch.nn.Module, batch: Batch, device: str) -> Tensor:
    """Return the mean of two losses for a response token: masked in the noisy copy, weighted by
    1/t, and shown in the clean copy, perhaps wrongly: what should stand here?
    """
    width = batch.ids.shape[1]
    first = BLOCK_LENGTH
    is_masked, weights = draw_masks(batch.is_response)
    noisy = batch.ids.masked_fill(is_masked, VOCABULARY[MASK])[:, first:]
    positions = torch.cat([torch.arange(width), torch.arange(first, width)])[None]
    with torch.autocast(device, dtype=torch.bfloat16):
        logits = model(
            torch.cat([batch.shown, noisy], 1).to(device),
            attention_mask=two_stream_mask(width, first).to(device),
            position_ids=positions.to(device),
        ).logits
    ids = torch.cat([batch.ids, batch.ids[:, first:]], 1).to(device)
    losses = functional.cross_entropy(
        logits.float().flatten(0, 1), ids.flatten(), reduction="none"
    ).view_as(ids)
    weights = torch.cat([batch.is_response.float(), weights[:, first:]], 1).to(device)
    return (losses * weights).sum() / batch.is_response.sum()


def main() -> None:
    """Train a model with block-causal attention; see training.run."""
    parser = training.arguments(__doc__)
    parser.add_argument(
        "--mistakes", type=float, default=0.25, help="share of the clean copies with mistakes"
    )
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    model = build_model()
    batches = draw_batches(Random(args.seed), args.batch_size, args.mistakes)
    training.run(
        model,
        lambda compiled: loss_of(compiled, next(batches), args.device),
        lambda: training.save(dict(model.named_parameters()), CONFIG, TOKENIZER, args.output),
        args,
    )


if __name__ == "__main__":
    main()
