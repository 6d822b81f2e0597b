"""Norms and activations for a model that vLLM runs uncompiled on a CPU.

vLLM relies on its compiler to fuse them: uncompiled, each makes several passes over newly allocated
memory, and a small model took a third longer for 64 texts.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import silu
from vllm.config import VllmConfig
from vllm.model_executor.layers.activation import SiluAndMul
from vllm.model_executor.layers.layernorm import RMSNorm


class OnePassNorm(nn.Module):
    """vLLM's RMSNorm, computed by vLLM's own kernel for CPUs."""

    def __init__(self, norm: RMSNorm) -> None:
        super().__init__()
        self.weight = norm.weight
        self._eps = norm.variance_epsilon

    def forward(
        self, states: Tensor, residual: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return states [T, d] normalized; with a residual, of the sum, and the sum."""
        if residual is None:
            # The kernel expects contiguous rows, and Qwen3's heads are strided views.
            states = states.contiguous()
            result = torch.empty_like(states)
            torch.ops._C.rms_norm(result, states, self.weight, self._eps)
            return result
        torch.ops._C.fused_add_rms_norm(states, residual, self.weight, self._eps)
        return states, residual


class SiluTimesUp(nn.Module):
    """vLLM's SiluAndMul with one temporary in memory instead of two."""

    def forward(self, states: Tensor) -> Tensor:
        """Return silu(gate) * up, [T, f], for states [T, 2 f] that hold gate, then up."""
        gate, up = states.chunk(2, dim=-1)
        return silu(gate).mul_(up)


def spare_memory(model: nn.Module, config: VllmConfig) -> None:
    """Replace vLLM's layers, before they have weights, if a CPU runs them uncompiled."""
    if config.device_config.device_type != "cpu" or not config.model_config.enforce_eager:
        return
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if type(child) is RMSNorm and child.has_weight:
                setattr(parent, name, OnePassNorm(child))
            elif type(child) is SiluAndMul:
                setattr(parent, name, SiluTimesUp())
