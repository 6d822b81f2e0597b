"""An independent Qwen2 and Qwen3 with attention in blocks, in plain torch. For tests.

A token may attend to whatever a mask says, at any position; nothing is cached, batched or padded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from tests.reference_a2d import ReferenceQwen3
from tests.reference_dream import ReferenceDream


def block_causal(num_tokens: int, length: int) -> Tensor:
    """Return bool [N, N]: which token attends to which, written as two loops."""
    sees = torch.zeros(num_tokens, num_tokens, dtype=torch.bool)
    for query in range(num_tokens):
        for key in range(num_tokens):
            sees[query, key] = key // length <= query // length
    return sees


class _Masked(ReferenceDream):
    """Sets what the attention of the model below it may see, and where its tokens stand."""

    sees: Tensor
    positions: Tensor

    def masked_rows(self, ids: Sequence[int], sees: Tensor, positions: Sequence[int]) -> Tensor:
        """Return the logits of the model's own rows, [T, V]. sees: bool [T, T]."""
        self.sees, self.positions = sees, torch.tensor(positions, dtype=torch.float64)
        return self.rows(list(ids))

    def block_rows(self, ids: Sequence[int], length: int) -> Tensor:
        """Return the logits of the model's own rows with attention in blocks, [N, V]."""
        return self.masked_rows(ids, block_causal(len(ids), length), range(len(ids)))

    def _mixed(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        scores = query @ key.T / math.sqrt(query.shape[-1])
        return torch.softmax(scores.masked_fill(~self.sees, -math.inf), -1) @ value

    def _rotate(self, x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        frequencies = self.config["rope_theta"] ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = self.positions[:, None] * frequencies
        cos, sin = angles.cos(), angles.sin()
        left, right = x[:, :half], x[:, half:]
        return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)


class BlockQwen3(_Masked, ReferenceQwen3):
    """Qwen3: row i is about token i."""

    def _attention(self, x: Tensor, block: dict[str, Tensor]) -> Tensor:
        heads, kv_heads = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        size = self.config["head_dim"]
        q, k, v = (x @ block[f"self_attn.{name}_proj.weight"].T for name in ("q", "k", "v"))
        mixed = []
        for head in range(heads):
            shared = head * kv_heads // heads
            own, other = (slice(h * size, (h + 1) * size) for h in (head, shared))
            query = self._rotate(self._norm(q[:, own], block["self_attn.q_norm.weight"]))
            key = self._rotate(self._norm(k[:, other], block["self_attn.k_norm.weight"]))
            mixed.append(self._mixed(query, key, v[:, other]))
        return torch.cat(mixed, dim=-1) @ block["self_attn.o_proj.weight"].T


class BlockQwen2(_Masked):
    """Qwen2, with biases: row i - 1 is about token i, and row 0 about token 0 too."""

    def _attention(self, x: Tensor, block: dict[str, Tensor]) -> Tensor:
        heads, kv_heads = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        size = x.shape[-1] // heads
        q, k, v = (
            x @ block[f"self_attn.{name}_proj.weight"].T + block[f"self_attn.{name}_proj.bias"]
            for name in ("q", "k", "v")
        )
        mixed = []
        for head in range(heads):
            shared = head * kv_heads // heads
            own, other = (slice(h * size, (h + 1) * size) for h in (head, shared))
            query, key = self._rotate(q[:, own]), self._rotate(k[:, other])
            mixed.append(self._mixed(query, key, v[:, other]))
        return torch.cat(mixed, dim=-1) @ block["self_attn.o_proj.weight"].T


REFERENCES: dict[str, type[BlockQwen2] | type[BlockQwen3]] = {
    "qwen3": BlockQwen3, "qwen2": BlockQwen2,
}  # fmt: skip


def reference_of(kind: str, folder: Path) -> BlockQwen2 | BlockQwen3:
    """Return the reference of that kind, in float64."""
    return REFERENCES[kind](folder)


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
