"""The layers for models that vLLM does not compile: what vLLM's own compute, and in the place of
those.
"""

import pytest

pytest.importorskip("vllm")

import torch
from torch import Tensor, nn

from dise_adapters.vllm.eager import OnePassNorm, SiluTimesUp
from dise_core import LLM

DTYPES = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)]
)


class Norm(nn.Module):
    """What OnePassNorm takes over."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight, self.variance_epsilon = nn.Parameter(weight, requires_grad=False), 1e-3


def normalized(states: Tensor, weight: Tensor) -> Tensor:
    """RMSNorm as its paper has it, in float64."""
    wide = states.double()
    return wide / (wide.pow(2).mean(-1, keepdim=True) + 1e-3).sqrt() * weight.double()


@DTYPES
def test_the_norm_is_rms_norm_of_the_sum(
    engines: tuple[LLM, LLM], dtype: torch.dtype, tolerance: float
) -> None:
    torch.manual_seed(0)
    states, residual, weight = (
        torch.randn(5, 96).to(dtype),
        torch.randn(5, 96).to(dtype),
        torch.randn(96).to(dtype),
    )
    norm, total = OnePassNorm(Norm(weight)), states + residual
    torch.testing.assert_close(
        norm(states).double(), normalized(states, weight), atol=tolerance, rtol=tolerance
    )
    result, kept = norm(states, residual)
    torch.testing.assert_close(
        result.double(), normalized(total, weight), atol=2 * tolerance, rtol=tolerance
    )
    torch.testing.assert_close(kept, total)


@DTYPES
def test_the_norm_of_heads_that_are_views_is_that_of_each_head(
    engines: tuple[LLM, LLM], dtype: torch.dtype, tolerance: float
) -> None:
    torch.manual_seed(1)
    joined, weight = torch.randn(5, 96).to(dtype), torch.randn(16).to(dtype)
    heads = joined[:, :64].view(5, 4, 16)
    torch.testing.assert_close(
        OnePassNorm(Norm(weight))(heads).double(),
        normalized(heads, weight),
        atol=tolerance,
        rtol=tolerance,
    )


@DTYPES
def test_the_activation_is_silu_of_the_gate_times_up(dtype: torch.dtype, tolerance: float) -> None:
    torch.manual_seed(0)
    states = torch.randn(5, 64).to(dtype)
    gate, up = states[:, :32].double(), states[:, 32:].double()
    expected = gate / (1 + (-gate).exp()) * up
    torch.testing.assert_close(
        SiluTimesUp()(states).double(), expected, atol=tolerance, rtol=tolerance
    )


def test_a_model_on_a_cpu_runs_on_them(engines: tuple[LLM, LLM]) -> None:
    [kinds] = engines[0].predictor._reader._engine.apply_model(  # type: ignore[attr-defined]
        lambda model: [type(module).__name__ for module in model.modules()]
    )
    layers, has_head_norms = kinds.count("SiluTimesUp"), "Qwen3Attention" in kinds
    per_layer = 4 if has_head_norms else 2
    assert (layers > 0, kinds.count("OnePassNorm")) == (True, per_layer * layers + 1)
    assert not {"RMSNorm", "SiluAndMul"} & set(kinds)
