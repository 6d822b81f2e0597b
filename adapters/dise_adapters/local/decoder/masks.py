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
    attention's where every token of a window attends to the whole text.
    """

    def __init__(
        self, attention: Attention, batch: TextBatch, device: torch.device, is_wide: bool = False
    ) -> None:
        """is_wide: whether masks may be wider than the keys, as `key_width` says."""
        positions, (is_key, num_keys) = batch.positions, batch.keys
        self._device, self._width, self._num_keys = device, positions.shape[-1], num_keys
        self._allowed: Tensor | None = None
        # How many keys each token sees, of the text and of the batch, int64 [B or 1, W or 1].
        lengths = None if is_key is None else is_key.sum(1, keepdims=True)
        self._limits: Ids | None = lengths
        if batch.groups is not None:
            self._allowed = _of_overlays(attention, batch, batch.groups, device).flatten(0, 1)
            self._lines = np.arange(len(self._allowed)).reshape(positions.shape)
        elif not isinstance(attention, Bidirectional):
            limits = np.minimum(attention.num_seen(positions), num_keys)
            more = key_width(num_keys, device) - num_keys if is_wide else 0
            if more or not self._sees_all(limits):
                self._num_keys += more
                is_whole = limits.shape == (1, num_keys) and positions[0, 0] == 0
                if lengths is None or (is_whole and _hides_padding(limits, lengths)):
                    self._limits = limits
                else:
                    self._limits = np.minimum(limits, lengths)

    def all(self) -> Tensor | None:
        """Return all tokens' mask, bool [B or 1, 1, W or 1, N]; None if all are seen."""
        return self._below(self._limits) if self._allowed is None else self._of(self._lines)

    def at(self, columns: Ids) -> Tensor | None:
        """Return the mask for M queries per text, bool [B or 1, 1, M or 1, N]. columns:
        their columns in the batch, int64 [B, M].
        """
        if self._allowed is not None:
            return self._of(self._at(self._lines, columns))
        if self._limits is None or self._limits.shape[1] == 1:
            return self._below(self._limits)
        return self._below(self._at(self._limits, columns))

    def _at(self, lines: Ids, columns: Ids) -> Ids:
        every = np.broadcast_to(lines, (len(columns), self._width))
        lines = np.take_along_axis(every, columns, 1)
        return lines[:1] if (lines == lines[:1]).all() else lines

    def _of(self, lines: Ids) -> Tensor:
        assert self._allowed is not None
        [indices] = on_device(self._device, np.ascontiguousarray(lines))
        return self._allowed[indices].unsqueeze(1)

    def _below(self, limits: Ids | None) -> Tensor | None:
        """Return the mask by which tokens see so many keys: made on the device."""
        if limits is None:
            return None
        [on] = on_device(self._device, np.ascontiguousarray(limits))
        return torch.arange(self._num_keys, device=self._device) < on[:, None, :, None]

    def _sees_all(self, limits: Ids) -> bool:
        """Return whether every token attends to every key of its text."""
        if self._limits is None or limits.min() == self._num_keys:
            return bool(limits.min() == self._num_keys)
        if self._width == self._num_keys:  # whole texts, whose first tokens see few
            return False
        return bool((limits >= self._limits).all())


def _hides_padding(limits: Ids, lengths: Ids) -> bool:
    """Return whether no token of whole texts of these lengths, [B, 1], sees padding."""
    return all(limits[0, :length].max() <= length for length in np.unique(lengths))


def _of_overlays(
    attention: Attention, batch: TextBatch, groups: Ids, device: torch.device
) -> Tensor:
    """Return which tokens of texts with overlays see which, bool [B, T, T]."""
    places = np.arange(batch.positions.max() + 1)
    num_groups = int(groups.max()) + 1
    positions, group = on_device(device, batch.positions, groups)
    [limits] = on_device(device, attention.num_seen(batch.positions))
    text = torch.arange(len(group), device=device)[:, None]
    # Which positions each group replaces; the text, group 0, replaces none.
    shape = (len(group), num_groups, len(places))
    replaces = torch.zeros(shape, dtype=torch.bool, device=device)
    replaces[text, group, positions] = True
    replaces[:, 0] = False
    # By position, then by key: what each token sees of the text, and of its own overlay
    # all.
    is_allowed = torch.arange(len(places), device=device) < limits[:, :, None]
    of_text = is_allowed & ~replaces[text, group]
    query, key = group[:, :, None], group[:, None, :]
    shape = (*positions.shape, positions.shape[1])
    is_seen = of_text.gather(2, positions[:, None, :].expand(shape)) & (key == 0)
    is_seen |= (query == key) & (query > 0)
    if batch.is_real is not None:
        is_seen &= torch.from_numpy(batch.is_real).to(device)[:, None, :]
    return is_seen
