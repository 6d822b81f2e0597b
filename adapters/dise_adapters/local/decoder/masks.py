"""The attention masks of one batch."""

import numpy as np
import torch
from torch import Tensor

from dise_adapters.local.decoder.batch import TextBatch
from dise_adapters.local.decoder.padding import key_width
from dise_adapters.local.devices import on_device
from dise_core import Attention, Bidirectional, Ids


class Masks:
    """The attention masks of one batch, from the model's attention and the batch's
    padding.

    A token of an overlay attends to the text as its position may, but sees its own
    overlay where that stands; the text sees no overlay.

    Texts whose tokens have the same positions share one mask, and a part of the mask that
    hides nothing is left out: the padding's where no real token attends to padding, the
    attention's where every token attends to the whole text.
    """

    def __init__(
        self, attention: Attention, batch: TextBatch, device: torch.device, is_wide: bool = False
    ) -> None:
        """is_wide: whether masks may be wider than the keys, as `key_width` says."""
        positions, (is_key, num_keys) = batch.positions, batch.keys
        self._device, self._width, self._num_keys = device, positions.shape[-1], num_keys
        # Of each token, int64 [B or 1, W or 1]: how many keys it sees, of the text and of
        # the batch; among overlays its row in `_allowed`. None where each sees all.
        self._lines: Ids | None = None if is_key is None else is_key.sum(1, keepdims=True)
        self._allowed: Tensor | None = None
        if batch.groups is not None:
            self._allowed = _of_overlays(attention, batch, batch.groups, device).flatten(0, 1)
            self._lines = np.arange(len(self._allowed)).reshape(positions.shape)
        elif not isinstance(attention, Bidirectional):
            limits, lengths = np.minimum(attention.num_seen(positions), num_keys), self._lines
            more = key_width(num_keys, device) - num_keys if is_wide else 0
            if more or (limits < (num_keys if lengths is None else lengths)).any():
                self._num_keys += more
                is_whole = limits.shape == (1, num_keys) and positions[0, 0] == 0
                if lengths is None or (is_whole and _hides_padding(limits, lengths)):
                    self._lines = limits
                else:
                    self._lines = np.minimum(limits, lengths)

    def all(self) -> Tensor | None:
        """Return all tokens' mask, bool [B or 1, 1, W or 1, N]; None if all are seen."""
        return self._of(self._lines)

    def at(self, columns: Ids) -> Tensor | None:
        """Return the mask for M queries per text, bool [B or 1, 1, M or 1, N]. columns:
        their columns in the batch, int64 [B, M].
        """
        if self._lines is None or self._lines.shape[1] == 1:
            return self._of(self._lines)
        every = np.broadcast_to(self._lines, (len(columns), self._width))
        lines = np.take_along_axis(every, columns, 1)
        return self._of(lines[:1] if (lines == lines[:1]).all() else lines)

    def _of(self, lines: Ids | None) -> Tensor | None:
        """Return the mask of tokens with these `_lines`, made on the device."""
        if lines is None:
            return None
        [on] = on_device(self._device, np.ascontiguousarray(lines))
        if self._allowed is not None:
            return self._allowed[on].unsqueeze(1)
        return torch.arange(self._num_keys, device=self._device) < on[:, None, :, None]


def _hides_padding(limits: Ids, lengths: Ids) -> bool:
    """Return whether no token of whole texts of these lengths, [B, 1], sees padding."""
    return all(limits[0, :length].max() <= length for length in np.unique(lengths))


def _of_overlays(
    attention: Attention, batch: TextBatch, groups: Ids, device: torch.device
) -> Tensor:
    """Return which tokens of texts with overlays see which, bool [B, T, T]."""
    positions, group = on_device(device, batch.positions, groups)
    [limits] = on_device(device, attention.num_seen(batch.positions))
    text = torch.arange(len(group), device=device)[:, None]
    # Which positions each group replaces; the text, group 0, replaces none.
    shape = (len(group), int(groups.max()) + 1, int(batch.positions.max()) + 1)
    replaces = torch.zeros(shape, dtype=torch.bool, device=device)
    replaces[text, group, positions] = True
    replaces[:, 0] = False
    # Each token sees of the text what its overlay leaves there, and of that overlay all.
    query, key, places = group[:, :, None], group[:, None, :], positions[:, None, :]
    is_seen = ~replaces[text, group].gather(2, places.expand(-1, group.shape[1], -1))
    is_seen &= (places < limits[:, :, None]) & (key == 0)
    is_seen |= (query == key) & (query > 0)
    if batch.is_real is not None:
        is_seen &= torch.from_numpy(batch.is_real).to(device)[:, None, :]
    return is_seen
