"""The attention masks of one batch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dise_adapters.local.overlays import Overlays
from dise_core.arrays import Ids, Mask
from dise_core.model import Attention, Bidirectional


class Masks:
    """The attention masks of one batch, from the model's attention and the batch's padding.

    Texts whose tokens have the same positions share one mask, and a part of the mask that hides
    nothing is left out: the padding's where no real token attends to padding, the attention's where
    every token of a window attends to the whole text.
    """

    def __init__(
        self,
        attention: Attention,
        is_key: Mask | None,
        positions: Ids,
        num_keys: int,
        device: torch.device,
    ) -> None:
        """is_key: which keys are not padding, bool [B, N]; None if all. positions: each token's
        position in its text, int64 [B or 1, W]. num_keys: N.
        """
        self._device, self._width = device, positions.shape[-1]
        self._allowed: Tensor | None = None
        if not isinstance(attention, Bidirectional):
            # One row of the table for each distinct position, whatever the number of texts.
            distinct, lines = np.unique(positions, return_inverse=True)
            allowed = attention.allows(distinct, np.arange(num_keys))
            self._lines = lines.reshape(positions.shape)
            if not self._sees_all(allowed, is_key):
                self._allowed = self._on_device(allowed)
                is_whole = len(allowed) == num_keys and len(positions) == 1 and distinct[0] == 0
                is_key = None if is_whole and _hides_padding(allowed, is_key) else is_key
        self._is_key = None if is_key is None else self._on_device(is_key[:, None, None, :])

    def all(self) -> Tensor | None:
        """Return the mask for all tokens as queries, bool [B or 1, 1, W or 1, N]; None if every key
        is visible.
        """
        return self._is_key if self._allowed is None else self._of(self._lines)

    def at(self, columns: Ids) -> Tensor | None:
        """Return the mask for M queries per text, bool [B or 1, 1, M or 1, N]. columns: their
        columns in the batch, int64 [B, M].
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
    """Return whether no token of whole texts attends to the padding behind its text. allowed: bool
    [N, N]. is_key: bool [B, N].
    """
    if is_key is None:
        return True
    lengths = np.unique(is_key.sum(axis=1))
    return not any(allowed[:length, length:].any() for length in lengths)


class OverlayMasks:
    """The masks of a batch of texts with overlays: one for each of its texts."""

    def __init__(
        self, attention: Attention, is_real: Mask | None, overlays: Overlays, device: torch.device
    ) -> None:
        """is_real: which tokens are not padding, bool [B, T]; None if all."""
        positions, groups = (
            torch.from_numpy(each).to(device) for each in (overlays.positions, overlays.groups)
        )
        where = np.arange(overlays.positions.max() + 1)
        allows = torch.from_numpy(attention.allows(where, where)).to(device)
        batch = torch.arange(len(groups), device=device)[:, None]
        # Which positions each group replaces; the text, group 0, replaces none.
        shape = (len(groups), int(overlays.groups.max()) + 1, len(where))
        replaces = torch.zeros(shape, dtype=torch.bool, device=device)
        replaces[batch, groups, positions] = True
        replaces[:, 0] = False
        # By position, then by key: what each token sees of the text, and of its own overlay all.
        of_text = allows[positions] & ~replaces[batch, groups]
        query, key = groups[:, :, None], groups[:, None, :]
        shape = (*positions.shape, positions.shape[1])
        is_seen = of_text.gather(2, positions[:, None, :].expand(shape)) & (key == 0)
        is_seen |= (query == key) & (query > 0)
        if is_real is not None:
            is_seen &= torch.from_numpy(is_real).to(device)[:, None, :]
        self._batch, self._mask = batch, is_seen

    def all(self) -> Tensor:
        """Return the mask for all tokens as queries, bool [B, 1, T, T]."""
        return self._mask.unsqueeze(1)

    def at(self, columns: Ids) -> Tensor:
        """Return the mask for M queries per text, bool [B, 1, M, T]. columns: their columns in the
        batch, int64 [B, M].
        """
        chosen = torch.from_numpy(columns).to(self._mask.device)
        return self._mask[self._batch, chosen].unsqueeze(1)
