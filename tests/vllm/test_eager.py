"""The layers for models that vLLM does not compile compute what vLLM's own do, and stand in the
place of those.
"""

import pytest

pytest.importorskip("vllm")

import torch
from torch import Tensor, nn
from torch.testing import assert_close

from dise_adapters.vllm.inside.eager import OnePassNorm, SiluTimesUp
from dise_core import LLM

DTYPES = pytest.mark.parametrize(
    ("dtype", "error"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)]
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
def test_the_norm_is_rms_norm_of_the_sum_and_of_heads_that_are_views(
    engines: tuple[LLM, LLM], dtype: torch.dtype, error: float
) -> None:
    torch.manual_seed(0)
    states, residual, weight = (torch.randn(*size).to(dtype) for size in ((5, 96), (5, 96), (96,)))
    total, heads = states + residual, states[:, :64].view(5, 4, 16)
    of_heads = OnePassNorm(Norm(weight[:16]))(heads).double()
    assert_close(of_heads, normalized(heads, weight[:16]), atol=error, rtol=error)
    result, kept = OnePassNorm(Norm(weight))(states, residual)
    assert_close(result.double(), normalized(total, weight), atol=2 * error, rtol=error)
    assert_close(kept, total)


@DTYPES
def test_the_activation_is_silu_of_the_gate_times_up(dtype: torch.dtype, error: float) -> None:
    states = torch.randn(5, 64, generator=torch.Generator().manual_seed(0)).to(dtype)
    gate, up = states.double().chunk(2, dim=-1)
    expected = gate / (1 + (-gate).exp()) * up
    assert_close(SiluTimesUp()(states).double(), expected, atol=error, rtol=error)


def test_an_uncompiled_model_on_a_cpu_runs_on_them(engines: tuple[LLM, LLM]) -> None:
    [names] = engines[0].predictor._reader._engine.apply_model(  # type: ignore[attr-defined]
        lambda model: [type(module).__name__ for module in model.modules()]
    )
    layers, per_layer = names.count("SiluTimesUp"), 4 if "Qwen3Attention" in names else 2
    assert (layers > 0, names.count("OnePassNorm")) == (True, per_layer * layers + 1)
    assert not {"RMSNorm", "SiluAndMul"} & set(names)
