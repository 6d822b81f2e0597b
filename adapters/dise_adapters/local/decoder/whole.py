"""Any transformers model as a forward pass, which computes the states of all tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from dise_adapters.local.decoder.batch import TextBatch
from dise_adapters.local.decoder.masks import Masks
from dise_adapters.local.devices import on_device
from dise_core import Attention, BlockCausal, Canvases, Causal, Ids, InputError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MASKED = ("sdpa", "eager")
"""The implementations of attention in transformers that take any mask."""

MAX_WINDOW = 1024
"""The longest window that a layer may see for its masks to be made here: a text that is
longer is run to see that they are right.
"""


def check_implementation(name: str, attention: Attention) -> None:
    """Raise InputError for an implementation that cannot attend in blocks, or canvases."""
    if isinstance(attention, Canvases) and name != "sdpa":
        raise InputError(
            f"attn_implementation={name!r:.80} cannot attend in canvases; take 'sdpa'",
            "attn_implementation",
        )
    if isinstance(attention, BlockCausal) and name not in MASKED:
        raise InputError(
            f"attn_implementation={name!r:.80} cannot attend in blocks; take 'sdpa' or 'eager'",
            "attn_implementation",
        )


def head_beside(model: PreTrainedModel) -> nn.Module:
    """Return what may be a model's head: all modules beside its body, in their order."""
    parts = [part for part in model.children() if part is not model.base_model]
    return parts[0] if len(parts) == 1 else nn.Sequential(*parts)


def makes_logits(head: nn.Module, states: Tensor, logits: Tensor) -> bool:
    """Return whether a head makes these logits of the states."""
    try:
        return torch.equal(head(states).to(logits.device), logits)
    except Exception:  # modules of any kind, which do not follow one another
        return False


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
        config = model.config
        windows = "sliding_attention" in (getattr(config, "layer_types", None) or ())
        self._window: int | None = config.sliding_window if windows else None
        self._counts_behind: int | None = None
        self.takes_overlays = not isinstance(attention, Causal) and self._obeys_masks()

    def __call__(self, batch: TextBatch, rows: Ids) -> Tensor:
        assert batch.cached is None
        [indices] = on_device(self._device, rows)
        return self._states(batch).flatten(0, 1)[indices]

    def _states(self, batch: TextBatch) -> Tensor:
        [ids] = on_device(self._device, batch.input_ids)
        options = {"attention_mask": self._mask(batch)}
        if batch.groups is not None:
            [options["position_ids"]] = on_device(self._device, self._positions(batch))
        states: Tensor = self._model(ids, use_cache=False, **options)[self._output]
        return states.to(self._device)

    def _positions(self, batch: TextBatch) -> Ids:
        """Return each token's position as the model numbers them, int64 [B or 1, N].

        RoBERTa and its like count from behind the padding token's id, which each padding
        token has, wherever it stands.
        """
        padding, groups = self._counts_behind, batch.groups
        if padding is None or groups is None:
            return batch.positions
        is_counted = (batch.input_ids != padding) & (groups == 0)
        num_before = is_counted.cumsum(1) - is_counted
        places = np.broadcast_to(batch.positions, groups.shape)
        counted = np.take_along_axis(num_before, places, 1) + padding + 1
        return np.where(is_counted | (groups > 0), counted, padding)

    def _mask(self, batch: TextBatch) -> Any:
        """Return the padding's mask [B, N], from which transformers makes its own; in
        blocks, and for overlays, the whole mask, [B, 1, N, N], to be added to the scores:
        by the kind of layer, where some see only the tokens of a window.
        """
        if batch.groups is None and not isinstance(self._attention, BlockCausal):
            if batch.is_real is None:
                return None
            return torch.from_numpy(batch.is_real).to(self._device, torch.int64)
        seen = Masks(self._attention, batch, self._device).all()
        if self._window is None or batch.groups is None:
            return self._scores(batch, seen)
        [places] = on_device(self._device, batch.positions[:, None])
        near = (places[..., None] - places[..., None, :]).abs() <= self._window
        windowed = near if seen is None else near & seen
        return {
            "full_attention": self._scores(batch, seen),
            "sliding_attention": self._scores(batch, windowed),
        }

    def _scores(self, batch: TextBatch, seen: Tensor | None) -> Tensor:
        """Return what is added to the scores, [B, 1, N, N]. seen: None for all tokens."""
        count, length = batch.input_ids.shape
        shape, dtype = (count, 1, length, length), self._model.dtype
        scores = torch.zeros(shape, device=self._device, dtype=dtype)
        return scores if seen is None else scores.masked_fill_(~seen, torch.finfo(dtype).min)

    def _obeys_masks(self) -> bool:
        """Return whether the model takes any mask and any positions, from what it
        computes: a copy of a token, at its position and in its place, is unseen by the
        others and has that token's state. Finds how it counts positions.
        """
        config, padding = self._model.config, getattr(self._model.config, "pad_token_id", None)
        window = self._window or 0
        if config._attn_implementation not in MASKED or window > MAX_WINDOW:
            return False
        first_id, last_id, other_id = [token for token in range(4) if token != padding][:3]
        inner_id = other_id if padding is None else padding
        text = np.array([first_id, inner_id, *[last_id] * (1 + window)])
        in_blocks = isinstance(self._attention, BlockCausal)
        try:
            plain = self._states(_probe(text))
            noise = min(1e-2, torch.finfo(plain.dtype).eps ** 0.5)
            for self._counts_behind in (None,) if in_blocks else (None, padding):
                for place in (0, 2):
                    copied = self._states(_probe(np.append(text, text[place]), place))
                    expected = torch.cat([plain, plain[:, place : place + 1]], 1)
                    if not torch.allclose(copied, expected, rtol=noise, atol=noise):
                        break
                else:
                    return True
        except Exception:  # a model of any kind, called as not all can be
            return False
        return False


def _probe(ids: Ids, place: int | None = None) -> TextBatch:
    """Return a text; with an overlay of its last token at `place`, if one is given."""
    positions = np.arange(len(ids))[None]
    if place is None:
        return TextBatch(ids[None], None, positions)
    groups = (positions == len(ids) - 1).astype(np.int64)
    return TextBatch(ids[None], None, np.where(groups, place, positions), groups)
