"""A GPU that is not there. Within PretendedGPU torch's meta tensors, of which its fake tensors are
made, are those of a device: they have shapes, types and strides, but no numbers, and each operation
on them is checked and counted. What comes back from the device is zeros.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from dise_core import Read, Reading

GPU = torch.device("meta")

KERNELS = {"logsumexp": 7, "sort": 12, "topk": 6, "cumsum": 2, "isin": 4, "index_put_": 2,
           "scatter": 2, "index_fill": 2, "_grouped_mm": 2} | dict.fromkeys(
               ("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided"), 0
           )  # fmt: skip
"""The kernels of an operation, if it is not one; a view is none."""

ATTENTION = "scaled_dot_product_attention"

FUSED = ("linear", "rms_norm", ATTENTION)
"""Operations that are one on a GPU, though torch can compute them in parts."""

WAITING = ("item", "_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim",
           "equal", "bincount", "repeat_interleave")  # fmt: skip
"""Operations after which the host needs to know a number of the device's."""

PACKAGES = ("dise_adapters", "transformers")


@dataclass
class Pass:
    """What answering some Reads asks of the device. tokens: that run. copies: their number and
    bytes, by where they go. cached: bytes copied out of the KV cache. shapes: those of attention
    that are new; plans: those of them that cuDNN would plan. peak: bytes, beside the weights and
    the cache. faults: what a GPU refuses or is held up by, each with its place.
    """

    reads: int = 0
    tokens: int = 0
    kernels: int = 0
    copies: dict[str, list[int]] = field(default_factory=lambda: {"in": [0, 0], "out": [0, 0]})
    cached: int = 0
    shapes: int = 0
    plans: int = 0
    peak: int = 0
    faults: list[str] = field(default_factory=list)


class PretendedGPU(TorchDispatchMode):
    """Counts in `now` what is asked of the device.

    A fault is an operation on tensors of both sides; within a forward pass, one that waits, and
    one of ours that makes float32 of 16-bit states; and a copy to the device while that is busy,
    since it is from memory that may be paged, and so waits.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now, self.passes = Pass(), list[Pass]()
        self._is_inside = self._is_busy = False
        self._shapes, self._cache = set[object](), -1
        self._held: dict[int, tuple[StorageWeakRef, int]] = {}

    def watch(self, predictor: Any) -> None:
        """Keep what each `read` of a loaded predictor asks for, in `passes`."""
        reader, read = predictor._reader, predictor.read
        body = reader._body
        if reader.room is not None:
            self._cache = _storage(reader.room.memory())

        class Body:
            def __getattr__(_, name: str) -> Any:  # noqa: N805
                return getattr(body, name)

            def __call__(_, batch: Any, rows: Any) -> Tensor:  # noqa: N805
                self.now.tokens += batch.input_ids.size
                self._is_inside = True
                states: Tensor = body(batch, rows)
                self._is_inside = False
                return states

        def watched(reads: Sequence[Read]) -> Sequence[Reading]:
            self.now = Pass(len(reads))
            self.passes.append(self.now)
            self._held.clear()
            self._is_busy = False
            answers: Sequence[Reading] = read(reads)
            return answers

        reader._body, predictor.read = Body(), watched

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs, name = kwargs or {}, func.overloadpacket.__name__
        tensors = [part for part in tree_leaves((args, kwargs)) if isinstance(part, Tensor)]
        inputs = [tensor for tensor in tensors if tensor.is_meta]
        if name in ("to", "_to_copy", "copy_"):
            place = self._target(name, args, kwargs)
            if (place.type == "meta") != args[name == "copy_"].is_meta:
                return self._moved(name, args, kwargs)
        if inputs and name not in FUSED and func._can_decompose():
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if inputs:
            self._check(name, tensors)
            args, kwargs = tree_map_only(Tensor, _there, (args, kwargs))
        if inputs and name in WAITING:
            return self._waited(name, inputs[0])
        is_attention = inputs and name == ATTENTION
        result = (self._attention if is_attention else func)(*args, **kwargs)
        outputs = [part for part in tree_leaves(result) if isinstance(part, Tensor)]
        self._ran(name, inputs, [part for part in outputs if part.is_meta], func)
        return result

    @staticmethod
    def _target(name: str, args: Any, kwargs: Any) -> torch.device:
        """Return the device that a copy goes to."""
        if name == "copy_":
            return args[0].device
        named = (part for part in (*args[1:], *kwargs.values()))
        places = [part for part in named if isinstance(part, torch.device | Tensor)]
        place = places[0] if places else args[0]
        return place if isinstance(place, torch.device) else place.device

    def _moved(self, name: str, args: Any, kwargs: Any) -> Tensor:
        """Return what a copy between the host and the device makes."""
        source = args[name == "copy_"]
        way = "out" if source.is_meta else "in"
        if source.numel():
            count = self.now.copies[way]
            count[0] += 1
            count[1] += source.nbytes
            if (self._is_inside and way == "out") or (self._is_busy and way == "in"):
                self._fault(f"a copy {way} waits for the pass")
            self._is_busy &= way == "in"
        if name == "copy_":
            return args[0]
        types = [part for part in (*args[1:], *kwargs.values()) if isinstance(part, torch.dtype)]
        dtype, is_out = (types or [source.dtype])[0], way == "out"
        with self:
            return torch.zeros(source.shape, dtype=dtype, device="cpu" if is_out else GPU)

    def _check(self, name: str, tensors: Sequence[Tensor]) -> None:
        for tensor in tensors:
            if not tensor.is_meta and tensor.dim():
                self._fault(f"{name} of {list(tensor.shape)} on the host")
        if name in ("index", "index_put_") and any(t.dtype == torch.bool for t in tensors[1:]):
            self._fault(f"{name} by a mask waits")

    def _waited(self, name: str, source: Tensor) -> Any:
        self._fault(f"{name} waits")
        if name in ("item", "_local_scalar_dense", "equal"):
            return torch.ones((), dtype=torch.bool if name == "equal" else source.dtype).item()
        found = torch.zeros(source.numel(), dtype=torch.int64, device=GPU)
        if name == "nonzero":
            return found[:, None].expand(-1, source.dim())
        return (found,) * 3 if "unique" in name else found

    def _attention(
        self,
        query: Tensor,
        key: Tensor,
        _: Tensor,
        mask: Tensor | None = None,
        *__: Any,
        **___: Any,
    ) -> Tensor:
        """Return what flash and efficient attention do: [B, M, H, D], transposed."""
        shape = (query.shape, key.shape, None if mask is None else mask.shape)
        if shape not in self._shapes:
            self._shapes.add(shape)
            self.now.shapes += 1
            self.now.plans += torch.backends.cuda.cudnn_sdp_enabled()
        batch, heads, queries, size = query.shape
        with self:
            if mask is not None:  # becomes numbers to add, of whole groups of 8 keys
                query.new_zeros((*mask.shape[:-1], -(-mask.shape[-1] // 8) * 8))
            return query.new_empty(batch, queries, heads, size).transpose(1, 2)

    def _ran(self, name: str, inputs: list[Tensor], outputs: list[Tensor], func: Any) -> None:
        known, writes = set(map(_storage, inputs)), func._schema.is_mutable
        made = [tensor for tensor in outputs if _storage(tensor) not in known]
        for tensor in made:
            self._hold(tensor)
        if not made and not writes:
            return
        self.now.kernels += KERNELS.get(name, 1)
        self._is_busy |= self._is_inside and name == "linear"
        if self._is_inside and self._cache in known and not (writes or name == ATTENTION):
            self.now.cached += sum(tensor.nbytes for tensor in made)
        is_short = any(t.is_floating_point() and t.itemsize == 2 for t in inputs)
        is_wide = is_short and any(t.dtype == torch.float32 for t in outputs[:1])
        package, line = _place() if is_wide else ("", "")
        # Integer weights multiply states of 8 bits, with their scales in float32.
        is_meant = line.startswith("local/decoder/integers.py")
        if self._is_inside and package == PACKAGES[0] and not is_meant:
            self._fault(f"{name} makes float32 of 16 bits")

    def _fault(self, what: str) -> None:
        self.now.faults.append(f"{what}: {_place()[1]}")

    def _hold(self, tensor: Tensor) -> None:
        """Count a tensor's memory until it is freed."""
        self._held = {key: pair for key, pair in self._held.items() if not pair[0].expired()}
        storage = tensor.untyped_storage()
        self._held[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self.now.peak = max(self.now.peak, sum(size for _, size in self._held.values()))


def _there(tensor: Tensor) -> Tensor:
    """Return a tensor of the host on the device, so that more faults are found."""
    return tensor if tensor.is_meta or not tensor.dim() else torch.empty_like(tensor, device=GPU)


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _place() -> tuple[str, str]:
    """Return the package, and the line, that asked for the operation."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        for package in PACKAGES:
            if f"/{package}/" in path:
                return package, f"{path.rpartition(f'/{package}/')[2]}:{frame.f_lineno}"
        frame = frame.f_back
    return "", "elsewhere"
