"""Linear layers in oneDNN's own layout of weights, on a CPU.

In float32 torch leaves such products to MKL, which on AMD's processors runs at half the speed; and a row's result there depends
on how many rows there are, here it does not. Source: what torch.compile does to weights that it may freeze.
"""

from __future__ import annotations

import platform

import torch
from torch import Tensor, nn

ROWS = 64
"""Rows of a product for which the layout is chosen; it serves any number."""


class PackedLinear(nn.Module):
    """x W^T + b with W packed; the weights themselves are not kept."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self._weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), ROWS)
        self._bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, states: Tensor) -> Tensor:
        """Return [..., out_features] of states [..., in_features]."""
        result: Tensor = torch.ops.mkldnn._linear_pointwise(states, self._weight, self._bias, "none", [], "")
        return result


def can_pack(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether this torch packs such weights."""
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    is_there = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return device.type == "cpu" and is_x86 and is_there and dtype in (torch.float32, torch.bfloat16)


def pack(model: nn.Module) -> None:
    """Replace the linear layers of a loaded model by packed ones, in place."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Linear:
                setattr(module, name, PackedLinear(child))
