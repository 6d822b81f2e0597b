"""Any transformers model as a forward pass, which computes the states of all tokens."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from dise_adapters.local.decoder.batch import TextBatch
from dise_adapters.local.decoder.masks import Masks
from dise_adapters.local.devices import on_device
from dise_core import Attention, BlockCausal, Causal, Ids, InputError

MASKED = ("sdpa", "eager")
"""The implementations of attention in transformers that take any mask."""


def check_implementation(name: str, attention: Attention) -> None:
    """Raise InputError for an implementation that cannot attend in blocks."""
    if isinstance(attention, BlockCausal) and name not in MASKED:
        raise InputError(
            f"attn_implementation={name!r:.80} cannot attend in blocks; take 'sdpa' or 'eager'",
            "attn_implementation",
        )


class WholeBody:
    """Any transformers model: computes all hidden states and returns those asked for."""

    max_padding = 0.25
    multiple = 1

    def __init__(
        self,
        model: Any,
        attention: Attention,
        output: str | int = "last_hidden_state",
        device: torch.device | None = None,
    ) -> None:
        """device: of texts and states; the model's, unless it is on several."""
        self._model, self._attention, self._output = model, attention, output
        self._device = device or model.device
        self.takes_overlays = not isinstance(attention, Causal) and self._obeys_masks()

    def __call__(self, batch: TextBatch, rows: Ids) -> Tensor:
        assert batch.cached is None
        [indices] = on_device(self._device, rows)
        return self._states(batch).flatten(0, 1)[indices]

    def _states(self, batch: TextBatch) -> Tensor:
        [ids] = on_device(self._device, batch.input_ids)
        options = {"attention_mask": self._mask(batch)}
        if batch.groups is not None:
            [options["position_ids"]] = on_device(self._device, batch.positions)
        states: Tensor = self._model(ids, use_cache=False, **options)[self._output]
        return states.to(self._device)

    def _mask(self, batch: TextBatch) -> Tensor | None:
        """Return the padding's mask [B, N], from which transformers makes its own; in
        blocks, and for overlays, the whole mask, [B, 1, N, N], to be added to the scores.
        """
        if batch.groups is None and not isinstance(self._attention, BlockCausal):
            if batch.is_real is None:
                return None
            return torch.from_numpy(batch.is_real).to(self._device, torch.int64)
        mask = Masks(self._attention, batch, self._device).all()
        count, length = batch.input_ids.shape
        shape, dtype = (count, 1, length, length), self._model.dtype
        scores = torch.zeros(shape, device=self._device, dtype=dtype)
        return scores if mask is None else scores.masked_fill_(~mask, torch.finfo(dtype).min)

    def _obeys_masks(self) -> bool:
        """Return whether the model takes any mask and any positions, from what it
        computes: a token that the others must not see changes nothing for them, but
        depends on its own position.
        """
        config = self._model.config
        windows = "sliding_attention" in (getattr(config, "layer_types", None) or ())
        if windows or config._attn_implementation not in MASKED:
            return False
        try:
            plain = self._states(_probe([0, 1, 2]))
            first, second = (self._states(_probe([0, 1, 2, 3], place)) for place in (0, 2))
        except Exception:  # a model of any kind, called as not all can be
            return False
        is_hidden = torch.allclose(first[:, :3], plain, rtol=1e-2, atol=1e-2)
        return is_hidden and not torch.equal(first[:, 3], second[:, 3])


def _probe(ids: list[int], place: int | None = None) -> TextBatch:
    """Return a text of three tokens, with an overlay of one at `place`, if any."""
    positions = [0, 1, 2] if place is None else [0, 1, 2, place]
    groups = None if place is None else np.array([[0, 0, 0, 1]])
    return TextBatch(np.array([ids]), None, np.array([positions]), groups)
