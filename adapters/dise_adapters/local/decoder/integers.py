"""Linear layers whose weights are integers of 8 or 4 bits, and that CPUs and GPUs multiply
as such.

int8: a row's weights are integers and a scale. int4: in blocks of 32, as in GGUF's Q4_0;
a block's scale is a whole number of steps of its row's, so that a layer unpacks to int8 by
one multiplication, each time that it runs: on a CPU some rows after the other, into memory
that is kept, as a whole layer's would be mapped anew by the system each time, and fit no
cache. States are rounded too, to 8 bits with a scale for each token, so that an answer
does not depend on what is computed beside it.
"""

import platform
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from threading import local
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from dise_adapters.local.decoder.padding import STEP, padding_of
from dise_adapters.local.devices import is_gpu
from dise_adapters.local.free_memory import give_back_freed_memory

BLOCK = 32
"""How many weights of a row share a scale in int4."""

MAX_INT8 = 127
"""The greatest integer of 8 bits: the largest weight of a row, or state of a token."""

LARGE = 128
"""What states are divided by before a product that float16 may not hold."""

MOST, FRACTION = 15, 4
"""The largest scale of a block of int4, in steps of its row's, of which its weights are then
-8 * 15 to 7 * 15; and bits behind the point, for blocks whose integers are their file's own.
"""

EXACT = 1 / 16
"""Of a step of a block: a weight of Q4_0 is no further from one of its 16 numbers."""

SLICE = 2**19
"""Numbers of a weight that are rounded at one time: their float32 stays in a cache, and
in memory that is kept, where glibc maps buffers above 32 MiB anew each time.
"""

UNPACKED = 2**22
"""Numbers of a weight that a CPU unpacks and multiplies at one time: with fewer its threads
wait for each other more often, and more fit no cache.
"""

ROOM = local()
"""What each thread keeps to unpack into: 4 MiB, or 8."""

ALIASED, APART, MOST_APART = 1024, 16, 2**27
"""On a CPU, rows of int8 whose length is a multiple of the first begin some numbers apart:
else they compete for the same few sets of its cache, and oneDNN, which packs a weight anew
for each product, takes up to three times as long (measured on an AMD EPYC). Those of a
weight with more numbers, as a large head's, do not: it is copied once more when packed.
"""

AT_ONCE = 2**25
"""The most states, products or unpacked weights at one time on a GPU: 256 MiB at most."""

GPU_STEP = 32
"""A GPU multiplies more than 16 rows, and as many at a time in any case."""

PACKED_FROM, NUM_TURNS, LAYERS = 64, 32, count()
"""After how many products a layer of int8 is packed: what 40 to 100 of them save, so that an
answer of 64 steps does not wait for it. And layers by turns, so that no pass packs them all.
"""

MIN_SCALE = 1e-30
"""The scale of zeros."""


class IntegerLinear(nn.Module):
    """x W^T + b, with the integers of W and the scales of its rows."""

    def __init__(self, scale: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self._scale, self._bias = scale, bias

    @abstractmethod
    def parts(self, max_rows: int | None = None) -> Iterator[Tensor]:
        """Yield the weight in steps of the rows' scales, int8 [R, in], some rows at a
        time, each until the next. max_rows: rows at a time, on a GPU.
        """

    @abstractmethod
    def integers(self) -> Tensor:
        """Return the whole weight, int8 [out, in]."""

    def forward(self, states: Tensor) -> Tensor:
        """Return [..., out] for states [..., in]."""
        return self._into(states.dtype, states)

    def into_float32(self, states: Tensor) -> Tensor:
        """Return the same, not yet rounded to the type of the states."""
        return self._into(torch.float32, states)

    def weight(self, dtype: torch.dtype) -> Tensor:
        """Return the whole weight [out, in], rounded to a type."""
        integers = self.integers()
        result = torch.empty(integers.shape, dtype=dtype, device=integers.device)
        return torch.mul(integers, self._scale[:, None], out=result)

    def _into(self, dtype: torch.dtype, states: Tensor) -> Tensor:
        rows = states.reshape(-1, states.shape[-1])
        is_whole = not (len(self._scale) % 8 or rows.shape[1] % 8)
        if is_gpu(states.device) and is_whole and has_integer_cores(states.device):
            result = self._on_gpu(rows, dtype)
        else:
            result = self._product(rows)
            if self._bias is not None:
                result.add_(self._bias)
            result = result.to(dtype)
        return result.view(*states.shape[:-1], len(self._scale))

    def _on_gpu(self, states: Tensor, dtype: torch.dtype) -> Tensor:
        """Return what a CPU makes of states [T, in], in few kernels and little room."""
        largest = torch.linalg.vector_norm(states, torch.inf, -1, True, dtype=torch.float32)
        scale = largest.div_(MAX_INT8).clamp_(min=MIN_SCALE)
        num_rows, size = len(states), max(1, AT_ONCE // states.shape[1])
        padded = num_rows + -num_rows % GPU_STEP
        rounded = states.new_zeros((padded, states.shape[1]), dtype=torch.int8)
        for some in (slice(at, at + size) for at in range(0, num_rows, size)):
            rounded[:num_rows][some] = (states[some] / scale[some]).round_()
        result = states.new_empty((len(states), len(self._scale)), dtype=dtype)
        first = 0
        for part in self.parts(AT_ONCE // padded // 8 * 8):
            place = slice(first, first := first + len(part))
            product = torch._int_mm(rounded, part.t())[: len(states)] * self._scale[place]
            if self._bias is None:
                torch.mul(product, scale, out=result[:, place])
            else:
                result[:, place] = product.mul_(scale).add_(self._bias[place])
        return result

    def _product(self, states: Tensor) -> Tensor:
        """Return states [T, in] times the weight, float32 [T, out]."""
        if is_gpu(states.device) or not multiplies_integers():
            product = linear(states / LARGE, self.integers().to(states.dtype))
            return product.float().mul_(LARGE).mul_(self._scale)
        scale = _scale(states)
        rounded = (states / scale).round_().to(torch.int8)
        rounded = pad(rounded, (0, 0, 0, padding_of(len(states))))
        return self._sums(rounded)[: len(states)].mul_(scale)

    def _sums(self, states: Tensor) -> Tensor:
        """Return states of int8 [T, in] times the weight, float32 [T, out]."""
        products = [torch._int_mm(states, part.t()) for part in self.parts()]
        sums = products[0] if len(products) == 1 else torch.cat(products, 1)
        # In place: new memory would be mapped by the system, which takes longer.
        return sums.view(torch.float32).copy_(sums).mul_(self._scale)


class Int8Linear(IntegerLinear):
    """A layer of int8; of an embedding too, whose rows it returns."""

    def __init__(
        self,
        weights: Sequence[Tensor],
        bias: Tensor | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """weights: [., in] each, joined. dtype: of the rows it returns, or else theirs."""
        integers, scale = _rounded(weights, _int8)
        super().__init__(scale.flatten(), bias)
        self._integers, self._dtype = integers, dtype or weights[0].dtype

    def parts(self, max_rows: int | None = None) -> Iterator[Tensor]:
        yield from torch.split(self.integers(), max_rows or len(self._scale))

    def integers(self) -> Tensor:
        return self._integers

    def rows(self, ids: Tensor) -> Tensor:
        """Return rows [..., in] of the weight."""
        return (self._integers[ids] * self._scale[ids, None]).to(self._dtype)


class PackedInt8Linear(Int8Linear):
    """The same on a CPU, packed for oneDNN once it has been used for a while: products of
    33 states take a fourth less time, of 128 an eighth.
    """

    def __init__(self, weights: Sequence[Tensor], bias: Tensor | None = None) -> None:
        super().__init__(weights, bias)
        self._packed: Tensor | None = None
        self._num_left = PACKED_FROM + next(LAYERS) % NUM_TURNS
        self._num_columns = weights[0].shape[1]

    def integers(self) -> Tensor:
        if self._packed is None:
            return self._integers
        identity = torch.eye(self._num_columns, dtype=torch.int8)
        return _multiplied(identity, self._packed, torch.ones(1)).t().to(torch.int8).contiguous()

    def _sums(self, states: Tensor) -> Tensor:
        if self._packed is None and self._num_left > 0:
            self._num_left -= 1
            return super()._sums(states)
        if self._packed is None:
            # Contiguous, as it is taken to be.
            self._packed = torch.ops.onednn.qlinear_prepack(self._integers.contiguous(), None)
            del self._integers
            give_back_freed_memory()
        return _multiplied(states, self._packed, self._scale)


class Int4Linear(IntegerLinear):
    """A layer of int4. The rows of the weights must consist of blocks.

    What is unpacked at one time is stored side by side, as its transpose: so a run of
    rows, not of a few blocks, is multiplied by a run of scales.
    """

    def __init__(self, weights: Sequence[Tensor], bias: Tensor | None = None) -> None:
        """weights: [., in] each, joined."""
        *stored, scale = _rounded(weights, _int4)
        super().__init__(scale.flatten(), bias)
        self._num_columns = weights[0].shape[1]
        at_once = UNPACKED // self._num_columns // 8 * 8
        size = len(scale) if is_gpu(scale.device) else max(8, at_once)
        self._tiles = list(map(Tile.of, *(torch.split(part, size) for part in stored)))

    def parts(self, max_rows: int | None = None) -> Iterator[Tensor]:
        max_rows = min(max_rows or len(self._scale), 2 * AT_ONCE // self._num_columns // 8 * 8)
        for tile in self._tiles:
            yield from (part.unpacked() for part in tile.split(max_rows))

    def integers(self) -> Tensor:
        shape = len(self._scale), self._num_columns
        result = torch.empty(shape, dtype=torch.int8, device=self._scale.device)
        end = 0
        for part in self.parts():
            start, end = end, end + len(part)
            result[start:end] = part
        return result


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """Some rows of a layer of int4, side by side.

    pairs: of integers, those of a row's first half plus 8 and those of its second above
    them, int8 [in / 2, R]. factors: the blocks' scales, int8 [blocks, 1, R]. sixteenths:
    what these have besides; None where nothing has.
    """

    pairs: Tensor
    factors: Tensor
    sixteenths: Tensor | None

    @classmethod
    def of(cls, *rows: Tensor) -> Self:
        """Return the tile of what `_int4` makes of some rows."""
        pairs, factors, sixteenths = (part.movedim(0, -1).contiguous() for part in rows)
        return cls(pairs, factors, sixteenths if sixteenths.any() else None)

    def split(self, max_rows: int) -> Iterator[Self]:
        """Yield the tile in parts of so many rows at most."""
        for at in range(0, self.pairs.shape[1], max_rows):
            part = ..., slice(at, at + max_rows)
            sixteenths = None if self.sixteenths is None else self.sixteenths[part]
            yield type(self)(self.pairs[part], self.factors[part], sixteenths)

    def unpacked(self) -> Tensor:
        """Return integers of int8 [R, in], until the next are unpacked."""
        size, num_rows, device = 2 * self.pairs.numel(), self.pairs.shape[1], self.pairs.device
        room = _room(size if self.sixteenths is None else 2 * size, device)
        result = room[:size].view(-1, num_rows)
        low, high = result.chunk(2)
        torch.bitwise_and(self.pairs, 15, out=low).sub_(8)
        torch.bitwise_right_shift(self.pairs, 4, out=high)
        blocks = result.view(-1, BLOCK, num_rows)
        if self.sixteenths is None:
            blocks.mul_(self.factors)
        else:
            half = self.pairs.new_full((), 1 << FRACTION - 1)
            fine = torch.addcmul(half, blocks, self.sixteenths, out=room[size:].view_as(blocks))
            torch.addcmul(fine.bitwise_right_shift_(FRACTION), blocks, self.factors, out=blocks)
        # A GPU's integer cores want the rows of a weight.
        return result.t().contiguous() if is_gpu(device) else result.t()


def _room(size: int, device: torch.device) -> Tensor:
    """Return room for so many numbers of int8: on a CPU what this thread keeps, and torch
    keeps a GPU's.
    """
    if device.type != "cpu":
        return torch.empty(size, dtype=torch.int8, device=device)
    if getattr(ROOM, "size", 0) < size:
        with torch.inference_mode(False):
            ROOM.numbers = torch.empty(size, dtype=torch.int8)
        ROOM.size = size
    room: Tensor = ROOM.numbers[:size]
    return room


def int8_linear(weights: Sequence[Tensor], bias: Tensor | None = None) -> Int8Linear:
    """Return the layer of int8 that is the fastest where the weights are."""
    is_packed = not is_gpu(weights[0].device) and packs_integers()
    return (PackedInt8Linear if is_packed else Int8Linear)(weights, bias)


@cache
def multiplies_integers() -> bool:
    """Return whether int8 is multiplied fast and without overflow: x86 with VNNI does."""
    has_onednn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if not has_onednn or platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    largest = torch.full((STEP, 64), MAX_INT8, dtype=torch.int8)
    return bool((torch._int_mm(largest, largest.t()) == 64 * MAX_INT8**2).all())


@cache
def packs_integers() -> bool:
    """Return whether oneDNN multiplies packed integers, too, fast and without overflow."""
    if not multiplies_integers() or not hasattr(torch.ops.onednn, "qlinear_prepack"):
        return False
    largest = torch.full((STEP, 64), MAX_INT8, dtype=torch.int8)
    packed = torch.ops.onednn.qlinear_prepack(largest, None)
    return bool((_multiplied(largest, packed, torch.ones(1)) == 64 * MAX_INT8**2).all())


def _multiplied(states: Tensor, packed: Tensor, scale: Tensor) -> Tensor:
    """Return states of int8 [T, in] times a packed weight [out, in], of which each row, or
    all, have a scale, float32 [T, out].
    """
    # Of states without a sign, 128 more, which oneDNN takes off the sums: VNNI's own kind.
    unsigned = states.view(torch.uint8) ^ 128
    of_weight = (scale, torch.zeros(len(scale), dtype=torch.int32), None)  # zeros, and no bias
    result: Tensor = torch.ops.onednn.qlinear_pointwise(
        unsigned, 1.0, 128, packed, *of_weight, 1.0, 0, torch.float32, "none", [], ""
    )
    return result


@cache
def has_integer_cores(device: torch.device) -> bool:
    """Return whether torch multiplies int8 on such a GPU, and the GPU by tensor cores."""
    key = torch._C._dispatch_key_for_device(device.type)
    is_known = torch._C._dispatch_has_kernel_for_dispatch_key("aten::_int_mm", key)
    return is_known and (
        device.type != "cuda" or torch.cuda.get_device_capability(device) >= (8, 0)
    )


def _scale(numbers: Tensor) -> Tensor:
    """Return a scale for each row, [..., 1], float32."""
    highest, lowest = numbers.amax(-1, keepdim=True), numbers.amin(-1, keepdim=True)
    largest = torch.maximum(highest, lowest.neg_()).float()
    return largest.div_(MAX_INT8).clamp_(min=MIN_SCALE)


def _rounded(
    weights: Sequence[Tensor], rounding: Callable[[Tensor], Sequence[Tensor]]
) -> list[Tensor]:
    """Return what `rounding` makes of the rows of all weights, slice by slice."""
    results, end = list[Tensor](), 0
    for weight in weights:
        for rows in torch.split(weight, max(1, SLICE // weight.shape[1])):
            rounded = rounding(rows.float())  # of 16 bits, torch compares one by one
            if not results:
                num_rows = sum(map(len, weights))
                results = [_room_for(part, num_rows) for part in rounded]
            start, end = end, end + len(rows)
            for result, part in zip(results, rounded, strict=True):
                result[start:end] = part
    return results


def _room_for(part: Tensor, num_rows: int) -> Tensor:
    """Return room for so many rows like a part's; those of int8 may lie apart."""
    length = part.shape[-1]
    is_multiplied = part.dtype == torch.int8 and part.device.type == "cpu"
    is_aliased = is_multiplied and length % ALIASED == 0 and num_rows * length <= MOST_APART
    room = part.new_empty(num_rows, *part.shape[1:-1], length + APART * is_aliased)
    return room[..., :length]


def _int8(weight: Tensor) -> tuple[Tensor, Tensor]:
    scale = _scale(weight)
    return (weight / scale).round_().to(torch.int8), scale


def _int4(weight: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return pairs of integers, int8 [out, in / 2], the blocks' scales and their sixteenths,
    int8 [out, blocks, 1], as Tile has them, and the rows', [out, 1].

    A block's weights are -8 to 7 times its scale. So that its largest, either way, is -8, that
    scale would be an eighth of it: of two as large, of the positive one. Of the whole steps
    below and above that it is the one with the less error; or just that, to a sixteenth, where
    weights are such integers already.
    """
    blocks = weight.reshape(len(weight), -1, BLOCK)
    highest, lowest = blocks.amax(-1, keepdim=True), blocks.amin(-1, keepdim=True)
    signs, steps = -(highest + lowest), torch.maximum(highest, lowest.neg_()).div_(8)
    is_exact, counts = _is_rounded(blocks[0] / steps[0]), torch.empty_like(blocks)
    top = MAX_INT8 / 8 if is_exact else MOST
    row = (steps.amax(1, keepdim=True) / top).clamp_(min=MIN_SCALE)
    exact = (steps / row).copysign_(signs)

    def count(scales: Tensor) -> Tensor:
        # A product takes a fourth of a division's time.
        inverse = scales.reciprocal().nan_to_num_(posinf=0, neginf=0)
        return torch.mul(blocks, inverse, out=counts).round_().clamp_(-8, 7)

    def error(scales: Tensor) -> Tensor:
        rounded = count(scales)
        return torch.addcmul(blocks, rounded, scales, value=-1, out=counts).square_().sum(-1, True)

    if is_exact:
        factors = exact
    else:
        below = exact.abs().floor_().clamp_(1, MOST - 1).copysign_(signs)
        above = below + torch.ones_like(signs).copysign_(signs)
        factors = torch.where(error(above * row) < error(below * row), above, below)
    count(factors * row)
    integers = counts.to(torch.int8).flatten(1)
    half = weight.shape[1] // 2
    pairs = (integers[:, half:] << 4).add_(integers[:, :half]).add_(8)
    sixteenths = (factors * (1 << FRACTION)).round_().to(torch.int16)
    units, fraction = sixteenths >> FRACTION, sixteenths & (1 << FRACTION) - 1
    return pairs, units.to(torch.int8), fraction.to(torch.int8), row.view(-1, 1)


def _is_rounded(counts: Tensor) -> bool:
    """Return whether weights, of which the largest of each block is 8 or -8, are integers."""
    return not bool(((counts - counts.round()).abs() >= EXACT).any())  # NaN, of zeros, are
