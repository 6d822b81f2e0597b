"""The diffusion transformer that MDLM, SEDD and BD3-LM share."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention, silu

Pairs = list[tuple[Tensor, Tensor]]  # the keys and values of each layer, [B, H, K, d]

WAVES = 16  # frequencies in which the noise is told


class Layer(nn.Module):
    """Attention and an MLP; the noise shifts, scales and gates both (adaLN)."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norms = nn.ModuleList(nn.LayerNorm(dim, bias=False) for _ in range(2))
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        parts = nn.Linear(dim, 4 * dim), nn.GELU(approximate="tanh"), nn.Linear(4 * dim, dim)
        self.mlp = nn.Sequential(*parts)
        self.modulation = nn.Linear(dim, 6 * dim)

    def forward(
        self, x: Tensor, noise: Tensor, turn: Tensor, allowed: Tensor | None, past: Any
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return the states [B, N, dim], and keys and values, those of the past first."""
        shift, scale, gate, *behind = self.modulation(noise)[:, None].chunk(6, -1)
        mixed = self.qkv(self.norms[0](x) * (1 + scale) + shift)
        q, k, v = mixed.unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = _turned(q, turn), _turned(k, turn)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        heard = scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        x = x + gate * self.out(heard.transpose(1, 2).flatten(2))
        shift, scale, gate = behind
        x = x + gate * self.mlp(self.norms[1](x) * (1 + scale) + shift)
        return x, (k, v)


class Network(nn.Module):
    """Logits [B, N, V] of token ids at a total noise sigma; in float64."""

    def __init__(self, vocab_size: int, dim: int = 32, num_heads: int = 2) -> None:
        super().__init__()
        self.num_turns = dim // num_heads // 2
        self.embed = nn.Embedding(vocab_size, dim)
        self.time = nn.Sequential(nn.Linear(2 * WAVES, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.layers = nn.ModuleList(Layer(dim, num_heads) for _ in range(2))
        self.norm = nn.LayerNorm(dim, bias=False)
        self.modulation = nn.Linear(dim, 2 * dim)
        self.head = nn.Linear(dim, vocab_size)

    def forward(
        self,
        ids: Tensor,
        sigma: Tensor,
        allowed: Tensor | None = None,
        places: Tensor | None = None,
        past: Pairs | None = None,
    ) -> tuple[Tensor, Pairs]:
        """Return the logits of ids, int64 [B, N], at sigma [B], and keys and values.
        allowed: what attends to what, bool or added to the scores, as broadcast to
        [B, H, N, K]. places: where the tokens stand, int64 [N]. past: what precedes them.
        """
        places = torch.arange(ids.shape[1]) if places is None else places
        angles = places[:, None] * 10000.0 ** (
            -torch.arange(self.num_turns).double() / self.num_turns
        )
        turn = torch.stack([angles.cos(), angles.sin()])
        waves = sigma[:, None] * 10000.0 ** (-torch.arange(WAVES).double() / WAVES)
        noise = silu(self.time(torch.cat([waves.cos(), waves.sin()], -1)))
        x, pairs = self.embed(ids), []
        for index, layer in enumerate(self.layers):
            x, pair = layer(x, noise, turn, allowed, past and past[index])
            pairs.append(pair)
        shift, scale = self.modulation(noise)[:, None].chunk(2, -1)
        return self.head(self.norm(x) * (1 + scale) + shift), pairs


def _turned(x: Tensor, turn: Tensor) -> Tensor:
    """Rotate the two halves of each head by the position's angles."""
    (first, second), (cos, sin) = x.chunk(2, -1), turn
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def substituted(logits: Tensor, ids: Tensor, mask_id: int) -> Tensor:
    """Return MDLM's log p(x0 | x_t) (SUBS), up to a constant a row: the mask has
    probability 0, and a visible token is carried over.
    """
    vocabulary = torch.arange(logits.shape[-1])
    is_kept = (ids == mask_id)[..., None] | (vocabulary == ids[..., None])
    return logits.masked_fill(~is_kept | (vocabulary == mask_id), -math.inf)


def denoised(logits: Tensor, ids: Tensor, sigma: Tensor, mask_id: int | None) -> Tensor:
    """Return SEDD's log p(x0 | x_t), up to a constant a row, from the logarithms of its
    scores p_t(y) / p_t(x_t): (e^(-sigma Q) s)_y p_t(x_t | y), where sigma removes all
    noise. mask_id None: of uniform noise.
    """
    is_own = torch.arange(logits.shape[-1]) == ids[..., None]
    scores, stay = logits.exp().masked_fill(is_own, 1.0), (-sigma).exp()[:, None, None]
    if mask_id is None:
        scores = scores - (1 - stay) * scores.mean(-1, keepdim=True)
        moves = (1 - stay) / logits.shape[-1] + is_own * stay
    else:
        is_masked = (ids == mask_id)[..., None]
        moves = torch.where(is_masked, 1 - stay, is_own * stay)
        moves = moves * (torch.arange(logits.shape[-1]) != mask_id)
    return (scores * moves).clamp_min(0).log()
