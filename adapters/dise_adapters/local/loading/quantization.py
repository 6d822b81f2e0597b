"""Which layers --quantization rounds, and which models it covers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor, nn

from dise_adapters.local.decoder.integers import BLOCK, Int4Linear, IntegerLinear, int8_linear
from dise_adapters.local.devices import is_gpu
from dise_core import EngineConfig, InputError

if TYPE_CHECKING:
    from dise_core.params.engine import Quantization

log = logging.getLogger(__name__)

MIN_SHARE = 0.5
"""Of a body's weights, the share that linear layers must hold."""

EXPERTS = ("gate_up_proj", "down_proj")
"""The tensors of transformers that hold the linear layers of all experts of a layer."""


class Quantizer:
    """Makes the linear layers of a decoder, by a method (int8 or int4)."""

    def __init__(self, method: Quantization) -> None:
        self._method = method

    @classmethod
    def of(cls, config: EngineConfig, device: torch.device) -> Self | None:
        """Return what the options ask for; None without quantization."""
        if config.quantization is None:
            return None
        if is_gpu(device):
            _tell(config.quantization)
        return cls(config.quantization)

    def linear(self, weights: Sequence[Tensor], bias: Tensor | None = None) -> IntegerLinear:
        """Return the layer of weights [., in], joined and rounded, and a bias [out]."""
        if self._method == "int8":
            return int8_linear(weights, bias)
        if (width := weights[0].shape[1]) % BLOCK:
            raise InputError(
                f"quantization='int4' needs rows of a multiple of {BLOCK} weights, not {width}",
                "quantization",
            )
        return Int4Linear(weights, bias)

    def modules(self, body: nn.Module, name: object, device: torch.device) -> None:
        """Replace all linear layers of a body, on the device. Raises as refuse_few."""
        self.refuse_few(linear_share(body), name)
        for parent in list(body.modules()):
            for part, layer in parent.named_children():
                if isinstance(layer, nn.Linear):
                    layer.to(device)
                    bias = None if layer.bias is None else layer.bias.detach()
                    setattr(parent, part, self.linear([layer.weight.detach()], bias))

    def refuse_few(self, share: float, name: object) -> None:
        """Raise InputError where few of a decoder's weights are in linear layers."""
        if share < MIN_SHARE:
            raise InputError(
                f"quantization={self._method!r} covers linear layers, which are only {share:.0%} "
                f"of the decoder of {name}",
                "quantization",
            )


@cache
def _tell(method: Quantization) -> None:
    """Tell once what was not shown: that it is faster there."""
    log.warning("quantization=%r saves memory on a GPU, not time.", method)


def linear_share(body: nn.Module, has_experts: bool = False) -> float:
    """Return the share of a body's weights, without its embeddings, that are in linear
    layers, and has_experts: in tensors of all experts.
    """
    modules = list(body.modules())
    linear = sum(module.weight.numel() for module in modules if isinstance(module, nn.Linear))
    tensors = (getattr(module, name, None) for module in modules for name in EXPERTS if has_experts)
    experts = sum(weight.numel() for weight in tensors if isinstance(weight, nn.Parameter))
    apart = sum(module.weight.numel() for module in modules if isinstance(module, nn.Embedding))
    total = sum(weight.numel() for weight in body.parameters()) - apart
    return (linear + experts) / max(1, total)
