"""Weight-only quantization of linear layers, by torchao.

A layer's weights are kept as integers with a scale for each row (int8), or a scale and an offset
for each block of up to 128 weights of a row (int4); states keep their type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from dise_adapters.local.devices import is_gpu
from dise_adapters.local.linear import joined
from dise_adapters.local.quiet import quiet_torchao
from dise_core.errors import InputError

if TYPE_CHECKING:
    from torchao.core.config import AOBaseConfig

    from dise_core.engine_options import Quantization

BLOCKS = (128, 64, 32)
"""How many weights of a row share a scale in int4: the largest that divides the row."""

LEAST_SHARE = 0.5
"""Of a body's weights, the share that linear layers must hold."""

EXPERTS = ("gate_up_proj", "down_proj")
"""The tensors of transformers that hold the linear layers of all experts of a layer."""


class Quantizer:
    """Quantizes linear layers, with `kind` bits a weight, for states of a type on a device."""

    def __init__(self, kind: Quantization, device: torch.device, dtype: torch.dtype) -> None:
        """Raises InputError without torchao, and for a type that it cannot compute with."""
        self._kind, self._on_gpu = kind, device.type != "cpu"
        if kind == "int4" and is_gpu(device) and dtype != torch.bfloat16:
            raise _error(kind, "computes in bfloat16 alone on a GPU; take dtype='bfloat16'")
        try:
            with quiet_torchao():
                import torchao  # noqa: F401 (so that it is missed before a model is loaded)
        except ImportError as error:
            raise _error(kind, "needs torchao: pip install 'torchao>=0.18'") from error

    def linear(self, *layers: nn.Linear) -> nn.Module:
        """Return linear layers with the same input as one, quantized, whose output concatenates
        theirs.
        """
        layer = joined(*layers)
        self._quantize(layer)
        return layer

    def modules(self, body: nn.Module, name: object, device: torch.device) -> None:
        """Quantize all linear layers of a body, on the device. Raises what refuse_few does."""
        self.refuse_few(linear_share(body), name)
        for module in list(body.modules()):
            if isinstance(module, nn.Linear):
                self._quantize(module.to(device))

    def refuse_few(self, share: float, name: object) -> None:
        """Raise InputError if only a small share of the decoder of the model `name` is in linear
        layers.
        """
        if share < LEAST_SHARE:
            problem = f"covers linear layers, which are only {share:.0%} of the decoder of {name}"
            raise _error(self._kind, problem)

    def _quantize(self, layer: nn.Linear) -> None:
        from torchao.quantization import quantize_

        quantize_(layer, self._config(layer.in_features))

    def _config(self, num_inputs: int) -> AOBaseConfig:
        from torchao.quantization import Int4WeightOnlyConfig, Int8WeightOnlyConfig

        if self._kind == "int8":
            return Int8WeightOnlyConfig(set_inductor_config=False)
        block = next((size for size in BLOCKS if num_inputs % size == 0), None)
        if block is None:
            raise _error(self._kind, f"needs rows of a multiple of 32 weights, not {num_inputs}")
        if self._on_gpu:
            return Int4WeightOnlyConfig(
                block, set_inductor_config=False, int4_packing_format="tile_packed_to_4d"
            )
        from torchao.prototype.quantization.int4 import PrototypeInt4WeightOnlyConfig

        return PrototypeInt4WeightOnlyConfig(block, set_inductor_config=False)


def linear_weights(body: nn.Module, has_experts: bool = False) -> int:
    """Return how many weights a body's linear layers hold. has_experts: with those of experts that
    hold one tensor for all.
    """
    modules = list(body.modules())
    count = sum(each.weight.numel() for each in modules if isinstance(each, nn.Linear))
    names = EXPERTS if has_experts else ()
    found = (getattr(each, name, None) for each in modules for name in names)
    return count + sum(each.numel() for each in found if isinstance(each, nn.Parameter))


def linear_share(body: nn.Module, has_experts: bool = False) -> float:
    """Return the share of a body's weights, without its embeddings, that linear_weights counts."""
    embeddings = [each for each in body.modules() if isinstance(each, nn.Embedding)]
    apart = sum(each.weight.numel() for each in embeddings)
    whole = sum(weight.numel() for weight in body.parameters()) - apart
    return linear_weights(body, has_experts) / max(1, whole)


def _error(kind: Quantization, problem: str) -> InputError:
    return InputError(f"quantization={kind!r} {problem}", "quantization")
