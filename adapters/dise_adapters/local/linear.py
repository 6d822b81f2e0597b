"""Linear layers, joined if they share their input, and on a CPU with weights packed for oneDNN.

Unpacked float32 matmuls go to MKL, which runs at half the speed on AMD processors, and whose result
for a row depends on the number of rows; oneDNN's does not. Source: torch.compile packs the weights
that it may freeze in the same way.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from dise_adapters.local.devices import is_gpu

Join = Callable[..., nn.Module]
"""Returns linear layers with the same input as one module, whose output concatenates theirs."""

ROWS = 64
"""The number of rows that the packed layout is chosen for; it works for any number."""


class PackedLinear(nn.Module):
    """x W^T + b, with W packed for oneDNN."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)
        self._bias = bias

    def forward(self, states: Tensor) -> Tensor:
        """Return [..., out] for states [..., in]."""
        result: Tensor = torch.ops.mkldnn._linear_pointwise(
            states, self._weight, self._bias, "none", [], ""
        )
        return result


def can_pack(weight: Tensor) -> bool:
    """Return whether this build of torch can pack such weights on this machine."""
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    has_onednn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    is_there = has_onednn and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    if is_gpu(weight.device) or not is_x86 or not is_there:
        return False
    return weight.dtype == torch.float32 or (
        weight.dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )


def linear(*layers: nn.Linear) -> nn.Module:
    """Return linear layers with the same input as one, whose output concatenates theirs."""
    weight, bias = _concatenated(layers)
    return PackedLinear(weight, bias) if can_pack(weight) else layer_of(weight, bias)


def joined(*layers: nn.Linear) -> nn.Linear:
    """Return linear layers with the same input as one of torch's own."""
    return layer_of(*_concatenated(layers))


def _concatenated(layers: Sequence[nn.Linear]) -> tuple[Tensor, Tensor | None]:
    """Return the layers' weights and biases, one below the other."""
    weights, biases = [layer.weight.detach() for layer in layers], [layer.bias for layer in layers]
    weight = weights[0] if len(weights) == 1 else torch.cat(weights)
    return weight, None if biases[0] is None else torch.cat([each.detach() for each in biases])


def layer_of(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """Return the linear layer with that weight [out, in] and bias [out]."""
    num_outputs, num_inputs = weight.shape
    layer = nn.Linear(num_inputs, num_outputs, bias=bias is not None, device="meta")
    layer.load_state_dict(
        {"weight": weight} | ({} if bias is None else {"bias": bias}), assign=True
    )
    return layer.requires_grad_(False)
