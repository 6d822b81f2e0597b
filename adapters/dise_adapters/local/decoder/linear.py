"""Linear layers, joined if they share their input, and on a CPU with weights packed for
oneDNN.

Unpacked float32 matmuls go to MKL, which runs at half the speed on AMD processors, and
whose result for a row depends on the number of rows; oneDNN's does not. Source:
torch.compile packs the weights that it may freeze in the same way.
"""

import platform
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

import torch
from torch import Tensor, nn

from dise_adapters.local.decoder.integers import IntegerLinear
from dise_adapters.local.devices import is_gpu

MakeLinear = Callable[[Sequence[Tensor], Tensor | None], nn.Module]
"""Returns the linear layer of weights [., in] that are joined, and a bias [out]."""

ROWS = 64
"""The number of rows that the packed layout is chosen for; it works for any number."""


class PackedLinear(nn.Module):
    """x W^T + b, with W packed for oneDNN."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.pack(weight)
        self.bias = bias

    def pack(self, weight: Tensor) -> None:
        """Take the weight [out, in]."""
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)

    def forward(self, states: Tensor) -> Tensor:
        """Return [..., out] for states [..., in]."""
        result: Tensor = torch.ops.mkldnn._linear_pointwise(
            states, self.weight, self.bias, "none", [], ""
        )
        return result


def can_pack(weight: Tensor) -> bool:
    """Return whether this build of torch can pack such weights on this machine."""
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    has_onednn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    is_there = has_onednn and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    if is_gpu(weight.device) or not is_x86 or not is_there:
        return False
    mkldnn = torch.ops.mkldnn
    if weight.dtype == torch.float16:
        return hasattr(mkldnn, "_is_mkldnn_fp16_supported") and mkldnn._is_mkldnn_fp16_supported()
    return weight.dtype == torch.float32 or mkldnn._is_mkldnn_bf16_supported()


def linear(weights: Sequence[Tensor], bias: Tensor | None = None) -> nn.Module:
    """Return the layer of weights [., in], joined, and a bias [out], packed where it can
    be.
    """
    weight = weights[0] if len(weights) == 1 else torch.cat(list(weights))
    return PackedLinear(weight, bias) if can_pack(weight) else torch_linear(weight, bias)


@cache
def keeps_float32(device_type: str) -> bool:
    """Return whether this torch multiplies 16 bits into float32 on such devices."""
    key = torch._C._dispatch_key_for_device(device_type)
    is_known = hasattr(torch.ops.aten.mm, "dtype")
    return is_known and torch._C._dispatch_has_kernel_for_dispatch_key("aten::mm.dtype", key)


def into_float32(layer: nn.Module) -> Callable[[Tensor], Tensor]:
    """Return a head whose logits [R, V] of 16-bit states [R, d] are not rounded to 16 bits
    where that costs nothing: on CUDA, and of integers. In bfloat16 logits of 16 and more
    are 0.125 apart, so that the likeliest tokens tie.
    """
    if isinstance(layer, IntegerLinear):
        return layer.into_float32
    return partial(_multiply, layer) if type(layer) is nn.Linear else layer


def _multiply(layer: nn.Linear, states: Tensor) -> Tensor:
    if states.itemsize != 2 or not keeps_float32(states.device.type):
        rounded: Tensor = layer(states)
        return rounded
    logits = torch.mm(states, layer.weight.t(), out_dtype=torch.float32)
    return logits if layer.bias is None else logits.add_(layer.bias)


def torch_linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """Return the same as one of torch's own layers."""
    num_outputs, num_inputs = weight.shape
    layer = nn.Linear(num_inputs, num_outputs, bias=bias is not None, device="meta")
    state = {"weight": weight} | ({} if bias is None else {"bias": bias})
    layer.load_state_dict(state, assign=True)
    return layer.requires_grad_(False)


def joined(weights: Mapping[str, Tensor], *names: str) -> tuple[list[Tensor], Tensor | None]:
    """Return the weights and the bias of a layer that joins the outputs of several."""
    matrices = [weights[f"{name}.weight"] for name in names]
    biases = [weights[f"{name}.bias"] for name in names if f"{name}.bias" in weights]
    return matrices, torch.cat(biases) if biases else None
