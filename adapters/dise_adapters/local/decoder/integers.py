"""Linear layers whose weights are integers of 8 or 4 bits, and that a CPU multiplies as
such.

int8: a row's weights are integers and a scale. int4: in blocks of 32, as in GGUF's Q4_0;
a block's scale counts in steps of its row's, so that a layer unpacks to int8 by integer
arithmetic, each time that it runs. States are rounded too, to 8 bits with a scale for
each token, so that an answer does not depend on what is computed beside it.
"""

import platform
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from dise_adapters.local.decoder.padding import STEP
from dise_adapters.local.devices import is_gpu

BLOCK = 32
"""How many weights of a row share a scale in int4."""

MAX_INT8 = 127
"""The greatest integer of 8 bits: the largest weight of a row, or state of a token."""

LARGE = 128
"""What states are divided by before a product that float16 may not hold."""

BITS = 8
"""Of a block's scale behind the point."""

ROWS = 4096
"""Rows of a weight that are rounded at one time: large ones take no memory twice."""

MIN_SCALE = 1e-30
"""The scale of zeros."""


class IntegerLinear(nn.Module):
    """x W^T + b, with the integers of W and the scales of its rows."""

    def __init__(self, scale: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self._scale, self._bias = scale, bias

    @abstractmethod
    def integers(self) -> Tensor:
        """Return the weight [out, in] in steps of the rows' scales, int8."""

    def forward(self, states: Tensor) -> Tensor:
        """Return [..., out] for states [..., in]."""
        rows = states.reshape(-1, states.shape[-1])
        result = self._product(rows).mul_(self._scale)
        if self._bias is not None:
            result.add_(self._bias)
        return result.to(states.dtype).view(*states.shape[:-1], len(self._scale))

    def _product(self, states: Tensor) -> Tensor:
        if is_gpu(states.device) or not multiplies_integers():
            product = linear(states / LARGE, self.integers().to(states.dtype))
            return product.float().mul_(LARGE)
        scale = _scale(states)
        rounded = pad((states / scale).round_().to(torch.int8), (0, 0, 0, -len(states) % STEP))
        product = torch._int_mm(rounded, self.integers().t())
        return product[: len(states)].float().mul_(scale)


class Int8Linear(IntegerLinear):
    """A layer of int8; of an embedding too, whose rows it returns."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        integers, scale = _rounded(weight, _int8)
        super().__init__(scale.flatten(), bias)
        self._integers, self._dtype = integers, weight.dtype

    def integers(self) -> Tensor:
        return self._integers

    def rows(self, ids: Tensor) -> Tensor:
        """Return rows [..., in] of the weight, in the type that it had."""
        return (self._integers[ids] * self._scale[ids, None]).to(self._dtype)


class Int4Linear(IntegerLinear):
    """A layer of int4. The rows of the weight must consist of blocks."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        pairs, factors, scale = _rounded(weight, _int4)
        super().__init__(scale.flatten(), bias)
        self._pairs, self._factors = pairs, factors

    def integers(self) -> Tensor:
        halves = torch.stack([self._pairs & 15, self._pairs >> 4], 1).view(torch.int8).flatten(1)
        blocks = halves.sub_(8).view(*self._factors.shape[:2], BLOCK) * self._factors
        return blocks.add_(1 << BITS - 1).bitwise_right_shift_(BITS).to(torch.int8).flatten(1)


@cache
def multiplies_integers() -> bool:
    """Return whether int8 is multiplied fast and without overflow: x86 with VNNI does."""
    has_onednn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if not has_onednn or platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    largest = torch.full((STEP, 64), MAX_INT8, dtype=torch.int8)
    return bool((torch._int_mm(largest, largest.t()) == 64 * MAX_INT8**2).all())


def _scale(numbers: Tensor) -> Tensor:
    """Return a scale for each row, [..., 1], float32."""
    return numbers.abs().amax(-1, keepdim=True).float().div_(MAX_INT8).clamp_(min=MIN_SCALE)


def _rounded(weight: Tensor, rounding: Callable[[Tensor], Sequence[Tensor]]) -> list[Tensor]:
    parts = [rounding(part.float()) for part in torch.split(weight, ROWS)]
    return [torch.cat(tensors) for tensors in zip(*parts, strict=True)]


def _int8(weight: Tensor) -> tuple[Tensor, Tensor]:
    scale = _scale(weight)
    return (weight / scale).round_().to(torch.int8), scale


def _int4(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the integers in pairs, one of each half of a row, uint8 [out, in / 2], the
    blocks' scales, int16 [out, blocks, 1], and the rows'.

    A block's weights are -8 to 7 times its scale; the largest of them, either way, is -8.
    """
    blocks, scale = weight.reshape(len(weight), -1, BLOCK), _scale(weight)
    largest = blocks.gather(-1, blocks.abs().argmax(-1, keepdim=True))
    factors = (largest / (-8 * scale[..., None]) * (1 << BITS)).round_()
    steps = factors * scale[..., None] / (1 << BITS)
    counts = (blocks / steps).nan_to_num_().round_().clamp_(-8, 7)
    low, high = counts.add_(8).to(torch.uint8).flatten(1).chunk(2, dim=1)
    return low | high << 4, factors.to(torch.int16), scale
