"""The attention masks of one batch."""

import numpy as np
import torch
from torch import Tensor

from dise_adapters.local.decoder.batch import TextBatch
from dise_adapters.local.decoder.padding import key_width
from dise_adapters.local.devices import on_device
from dise_core import Attention, Bidirectional, Ids, Mask


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
        self._device, self._width = device, positions.shape[-1]
        self._allowed: Tensor | None = None
        if batch.groups is not None:
            self._allowed = _of_overlays(attention, batch, batch.groups, device).flatten(0, 1)
            self._lines = np.arange(len(self._allowed)).reshape(positions.shape)
            is_key = None
        elif not isinstance(attention, Bidirectional):
            # One row of the table for each distinct position, whatever the number of
            # texts.
            distinct, lines = np.unique(positions, return_inverse=True)
            allowed = attention.allows(distinct, np.arange(num_keys))
            self._lines = lines.reshape(positions.shape)
            more = key_width(num_keys, device) - num_keys if is_wide else 0
            if more or not self._sees_all(allowed, is_key):
                self._allowed = self._on_device(np.pad(allowed, [(0, 0), (0, more)]))
                is_whole = len(allowed) == num_keys and len(positions) == 1 and distinct[0] == 0
                is_key = None if is_whole and _hides_padding(allowed, is_key) else is_key
                is_key = None if is_key is None else np.pad(is_key, [(0, 0), (0, more)])
        self._is_key = None if is_key is None else self._on_device(is_key[:, None, None, :])

    def all(self) -> Tensor | None:
        """Return all tokens' mask, bool [B or 1, 1, W or 1, N]; None if all are seen."""
        return self._is_key if self._allowed is None else self._of(self._lines)

    def at(self, columns: Ids) -> Tensor | None:
        """Return the mask for M queries per text, bool [B or 1, 1, M or 1, N]. columns:
        their columns in the batch, int64 [B, M].
        """
        if self._allowed is None:
            return self._is_key
        every = np.broadcast_to(self._lines, (len(columns), self._width))
        lines = np.take_along_axis(every, columns, 1)
        return self._of(lines[:1] if (lines == lines[:1]).all() else lines)

    def _of(self, lines: Ids) -> Tensor:
        assert self._allowed is not None
        allowed = self._allowed[self._on_device(lines)].unsqueeze(1)
        return allowed if self._is_key is None else allowed & self._is_key

    def _sees_all(self, allowed: Mask, is_key: Mask | None) -> bool:
        """Return whether every token attends to every key of its text."""
        if is_key is None or allowed.all():
            return bool(allowed.all())
        if self._width == is_key.shape[-1]:  # whole texts: too large a test to pay
            return False
        is_padding = np.expand_dims(~is_key, 1)
        return bool((allowed[self._lines] | is_padding).all())

    def _on_device(self, array: Mask | Ids) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._device)


def _hides_padding(allowed: Mask, is_key: Mask | None) -> bool:
    """Return whether no token of whole texts, bool [N, N], attends to padding, [B, N]."""
    if is_key is None:
        return True
    lengths = np.unique(is_key.sum(axis=1))
    return not any(allowed[:length, length:].any() for length in lengths)


def _of_overlays(
    attention: Attention, batch: TextBatch, groups: Ids, device: torch.device
) -> Tensor:
    """Return which tokens of texts with overlays see which, bool [B, T, T]."""
    places = np.arange(batch.positions.max() + 1)
    num_groups = int(groups.max()) + 1
    positions, group = on_device(device, batch.positions, groups)
    allows = torch.from_numpy(attention.allows(places, places)).to(device)
    text = torch.arange(len(group), device=device)[:, None]
    # Which positions each group replaces; the text, group 0, replaces none.
    shape = (len(group), num_groups, len(places))
    replaces = torch.zeros(shape, dtype=torch.bool, device=device)
    replaces[text, group, positions] = True
    replaces[:, 0] = False
    # By position, then by key: what each token sees of the text, and of its own overlay
    # all.
    of_text = allows[positions] & ~replaces[text, group]
    query, key = group[:, :, None], group[:, None, :]
    shape = (*positions.shape, positions.shape[1])
    is_seen = of_text.gather(2, positions[:, None, :].expand(shape)) & (key == 0)
    is_seen |= (query == key) & (query > 0)
    if batch.is_real is not None:
        is_seen &= torch.from_numpy(batch.is_real).to(device)[:, None, :]
    return is_seen
