"""Norms and activations for a CPU on which vLLM does not compile the model.

vLLM leaves both to its compiler there: uncompiled they are several passes over memory that is taken
anew each time, and took a fifth of a small model's time.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import silu
from vllm.config import VllmConfig
from vllm.model_executor.layers.activation import SiluAndMul
from vllm.model_executor.layers.layernorm import RMSNorm


class OnePassNorm(nn.Module):
    """vLLM's RMSNorm by the kernel that vLLM has for CPUs."""

    def __init__(self, norm: RMSNorm) -> None:
        """Take over the weight of `norm`."""
        super().__init__()
        self.weight = norm.weight
        self._eps = norm.variance_epsilon

    def forward(
        self, states: Tensor, residual: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return the states [T, d] normalized; with a residual [T, d] that of their sum, and the
        sum, both in place.
        """
        if residual is None:
            # The kernel reads rows one after the other; the heads of Qwen3 are views with gaps.
            states = states.contiguous()
            result = torch.empty_like(states)
            torch.ops._C.rms_norm(result, states, self.weight, self._eps)
            return result
        torch.ops._C.fused_add_rms_norm(states, residual, self.weight, self._eps)
        return states, residual


class SiluTimesUp(nn.Module):
    """vLLM's SiluAndMul with one result in memory, not two."""

    def forward(self, states: Tensor) -> Tensor:
        """Return silu(gate) * up, [T, f], of gate and up side by side, [T, 2 f]."""
        gate, up = states.chunk(2, dim=-1)
        return silu(gate).mul_(up)


def spare_memory(model: nn.Module, config: VllmConfig) -> None:
    """Put these layers in place of vLLM's, before the weights are loaded, where the model runs on a
    CPU as it is.
    """
    if config.device_config.device_type != "cpu" or not config.model_config.enforce_eager:
        return
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if type(child) is RMSNorm and child.has_weight:
                setattr(parent, name, OnePassNorm(child))
            elif type(child) is SiluAndMul:
                setattr(parent, name, SiluTimesUp())
