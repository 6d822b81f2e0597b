"""What an independent Qwen2 or Qwen3 sees in blocks, in two streams and with a shadow. For tests.

A token may attend to whatever a mask says, at any position; nothing is cached, batched or padded.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from tests.reference_a2d import ReferenceQwen3
from tests.reference_backbone import Reference
from tests.reference_dream import ReferenceDream


def reference_of(kind: str, folder: Path) -> Reference:
    """Return the reference of that kind, in float64."""
    return ReferenceQwen3(folder) if kind == "qwen3" else ReferenceDream(folder)


def two_streams(num_tokens: int, length: int) -> Tensor:
    """Return bool [2N, 2N]: the mask that block-causal models are trained with on [x_t ; x_0]. A
    noisy row sees its own noisy block and the clean ones before it, a clean row the clean blocks
    up to its own. Source: BD3-LM.
    """
    sees = torch.zeros(2 * num_tokens, 2 * num_tokens, dtype=torch.bool)
    for query in range(2 * num_tokens):
        for key in range(2 * num_tokens):
            is_clean_query, is_clean_key = query >= num_tokens, key >= num_tokens
            block, other = query % num_tokens // length, key % num_tokens // length
            is_own = block == other and is_clean_query == is_clean_key
            is_before = block > other and is_clean_key and not is_clean_query
            is_clean = block >= other and is_clean_key and is_clean_query
            sees[query, key] = is_own or is_before or is_clean
    return sees


def with_shadow(
    sees: Tensor, ids: Sequence[int], position: int, mask_id: int, is_shifted: bool
) -> tuple[list[int], Tensor, list[int], int]:
    """Return a text with the shadow of one position: its ids, what sees what, positions, and the
    row that answers. sees: bool [N, N], the text's own.

    The mask, behind the text, sees what the position sees without the token at it. Where row i - 1
    answers for i, a copy of token i - 1 follows, which sees that mask instead of the token, and the
    mask sees that copy; if row i - 1 does not see i, it answers itself.
    """
    num_tokens = len(ids)
    answering = max(position - 1, 0) if is_shifted else position
    whole = list(range(num_tokens))
    if not sees[answering, position]:
        return list(ids), sees, whole, answering
    group = [position] + ([answering] if answering != position else [])
    size = num_tokens + len(group)
    grown = torch.zeros(size, size, dtype=torch.bool)
    grown[:num_tokens, :num_tokens] = sees
    for row, place in enumerate(group, num_tokens):
        for key in whole:
            grown[row, key] = sees[place, key] and key not in group
        grown[row, num_tokens:] = True
    added = [mask_id] + [ids[place] for place in group[1:]]
    return [*ids, *added], grown, [*whole, *group], size - 1
