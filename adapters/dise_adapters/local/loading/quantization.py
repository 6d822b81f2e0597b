"""Weight-only quantization of linear layers, by torchao.

A layer's weights are kept as integers with a scale for each row (int8), or a scale and an offset
for each block of up to 128 weights of a row (int4); states keep their type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from dise_adapters.local.decoder.linear import torch_linear
from dise_adapters.local.devices import is_gpu
from dise_adapters.local.loading.quiet import quiet_torchao
from dise_core import InputError

if TYPE_CHECKING:
    from torchao.core.config import AOBaseConfig

    from dise_core.params.engine import Quantization

BLOCKS = (128, 64, 32)
"""How many weights of a row share a scale in int4: the largest that divides the row."""

LEAST_SHARE = 0.5
"""Of a body's weights, the share that linear layers must hold."""

EXPERTS = ("gate_up_proj", "down_proj")
"""The tensors of transformers that hold the linear layers of all experts of a layer."""


class Quantizer:
    """Quantizes linear layers, by a method (int8 or int4), for states of a type on a device."""

    def __init__(self, method: Quantization, device: torch.device, dtype: torch.dtype) -> None:
        """Raises InputError without torchao, and for a type that it cannot compute with."""
        self._method, self._on_gpu = method, device.type != "cpu"
        if method == "int4" and is_gpu(device) and dtype != torch.bfloat16:
            raise _error(method, "computes in bfloat16 alone on a GPU; take dtype='bfloat16'")
        try:
            with quiet_torchao():
                import torchao  # noqa: F401 (so that it is missed before a model is loaded)
        except ImportError as error:
            raise _error(method, "needs torchao: pip install 'torchao>=0.18'") from error

    def linear(self, weight: Tensor, bias: Tensor | None) -> nn.Module:
        """Return the linear layer with that weight [out, in] and bias [out], quantized."""
        layer = torch_linear(weight, bias)
        self._quantize(layer)
        return layer

    def modules(self, body: nn.Module, name: object, device: torch.device) -> None:
        """Quantize all linear layers of a body, on the device. Raises what refuse_few does."""
        self.refuse_few(linear_share(body), name)
        for module in list(body.modules()):
            if isinstance(module, nn.Linear):
                self._quantize(module.to(device))

    def refuse_few(self, share: float, name: object) -> None:
        """Raise InputError for a decoder with a small share of its weights in linear layers."""
        if share < LEAST_SHARE:
            problem = f"covers linear layers, which are only {share:.0%} of the decoder of {name}"
            raise _error(self._method, problem)

    def _quantize(self, layer: nn.Linear) -> None:
        from torchao.quantization import quantize_

        quantize_(layer, self._config(layer.in_features))

    def _config(self, num_inputs: int) -> AOBaseConfig:
        from torchao.quantization import Int4WeightOnlyConfig, Int8WeightOnlyConfig

        if self._method == "int8":
            return Int8WeightOnlyConfig(set_inductor_config=False)
        block = next((size for size in BLOCKS if num_inputs % size == 0), None)
        if block is None:
            raise _error(self._method, f"needs rows of a multiple of 32 weights, not {num_inputs}")
        if self._on_gpu:
            return Int4WeightOnlyConfig(
                block, set_inductor_config=False, int4_packing_format="tile_packed_to_4d"
            )
        from torchao.prototype.quantization.int4 import PrototypeInt4WeightOnlyConfig

        return PrototypeInt4WeightOnlyConfig(block, set_inductor_config=False)


def linear_weights(body: nn.Module, has_experts: bool = False) -> int:
    """Return the weights in a body's linear layers; has_experts: and in one tensor for experts."""
    modules = list(body.modules())
    count = sum(module.weight.numel() for module in modules if isinstance(module, nn.Linear))
    names = EXPERTS if has_experts else ()
    tensors = (getattr(module, name, None) for module in modules for name in names)
    return count + sum(weight.numel() for weight in tensors if isinstance(weight, nn.Parameter))


def linear_share(body: nn.Module, has_experts: bool = False) -> float:
    """Return the share of a body's weights, without its embeddings, that linear_weights counts."""
    embeddings = [module for module in body.modules() if isinstance(module, nn.Embedding)]
    apart = sum(module.weight.numel() for module in embeddings)
    whole = sum(weight.numel() for weight in body.parameters()) - apart
    return linear_weights(body, has_experts) / max(1, whole)


def _error(method: Quantization, problem: str) -> InputError:
    return InputError(f"quantization={method!r} {problem}", "quantization")
