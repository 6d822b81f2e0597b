"""Linear layers joined and packed: the same numbers as torch's own, whichever way they are
computed.
"""

import numpy as np
import pytest
import torch
from torch import nn

from dise_adapters.local.decoder import linear as packed
from dise_adapters.local.decoder.layer import weights_of
from dise_adapters.local.decoder.linear import PackedLinear, can_pack, joined, linear
from dise_adapters.local.decoder.padding import padded_rows


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("is_packed", [True, False])
@torch.inference_mode()
def test_layers_that_are_joined_give_what_each_gives(
    monkeypatch: pytest.MonkeyPatch, is_packed: bool, bias: bool
) -> None:
    if not is_packed:
        monkeypatch.setattr(packed, "can_pack", lambda _: False)
    elif not can_pack(torch.zeros(1)):
        pytest.skip("this torch packs no weights")
    torch.manual_seed(0)
    layers = [nn.Linear(24, count, bias=bias) for count in (8, 16, 40)]
    weights = weights_of(nn.ModuleList(layers))
    together, states = linear(*joined(weights, "0", "1", "2")), torch.randn(3, 5, 24)
    assert isinstance(together, PackedLinear) == is_packed
    torch.testing.assert_close(
        together(states), torch.cat([layer(states) for layer in layers], dim=-1), rtol=0, atol=2e-6
    )
    [alone] = linear(*joined(weights, "0"))(states[:1, :1]).flatten(0, 1)
    torch.testing.assert_close(alone, layers[0](states[0, 0]), rtol=0, atol=2e-6)


def test_rows_are_padded_to_few_numbers() -> None:
    sizes = set()
    for count in range(1, 4097):
        places = padded_rows(np.arange(1, count + 1), torch.device("cpu"))
        assert places[:count].tolist() == list(range(1, count + 1))
        assert not places[count:].any()
        assert len(places) - count < (8 if count <= 32 else count / 8)
        sizes.add(len(places))
    assert len(sizes) == 32 / 8 + 32 / 4 + 64 / 8 + 128 / 16 + 256 / 32 + (4096 - 512) / 64
    assert len(padded_rows(np.arange(5), torch.device("meta"))) == 5
