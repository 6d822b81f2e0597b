"""The forward pass of DiffusionGemma, over texts and copies of their canvases at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from dise_adapters.local.decoder.batch import TextBatch
from dise_adapters.local.devices import is_gpu, on_device
from dise_core import Ids

IMPLEMENTATION = "dise_canvases"
"""What transformers knows `attend` by."""


@dataclass(frozen=True, slots=True)
class CanvasSpan:
    """Tokens [start, stop) of a batch without padding that attend alike: the causal tokens
    of a text, or a canvas, which sees all of itself and the `num_seen` tokens before it of
    the text that begins at `text`.
    """

    start: int
    stop: int
    text: int
    num_seen: int
    is_canvas: bool

    def parts(self, window: int | None) -> Iterator[tuple[slice, list[slice], bool]]:
        """Yield queries, their keys, and whether each sees none of the keys behind it and,
        with a window, none that is further away.

        A long text is taken in parts of a window, so that no mask grows with its square.
        """
        if self.is_canvas:
            stop = self.text + self.num_seen
            # The window is that of the canvas's first token: the others' does not move.
            first = self.text if window is None else max(self.text, stop - window + 1)
            yield (
                slice(self.start, self.stop),
                [slice(first, stop), slice(self.start, self.stop)],
                False,
            )
            return
        step = window or self.stop - self.start
        for first in range(self.start, self.stop, step):
            stop = min(first + step, self.stop)
            earliest = max(self.start, first - step + 1)
            yield slice(first, stop), [slice(earliest, stop)], True


def spans_of(groups: Sequence[Ids], positions: Sequence[Ids]) -> list[CanvasSpan]:
    """Return the spans of texts, one behind the other. groups, positions: of the tokens of
    each, int64 [T], as in TextBatch.
    """
    spans, text = list[CanvasSpan](), 0
    for group, places in zip(groups, positions, strict=True):
        borders = [0, *(np.flatnonzero(np.diff(group)) + 1).tolist(), len(group)]
        for start, stop in pairwise(borders):
            is_canvas = bool(group[start] > 0)
            spans.append(CanvasSpan(text + start, text + stop, text, int(places[start]), is_canvas))
        text += len(group)
    return spans


def attend(
    module: Any,  # noqa: ARG001
    query: Tensor,
    key: Tensor,
    value: Tensor,
    spans: Sequence[CanvasSpan],
    scaling: float,
    sliding_window: int | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """Return attention's output [1, T, H, D] for queries [1, H, T, D] over keys and values
    [1, H', T, D], as transformers calls an implementation.
    """
    if is_gpu(key.device):  # where torch's grouped-query attention is slow with a mask
        groups = query.shape[1] // key.shape[1]
        key, value = (part.repeat_interleave(groups, 1) for part in (key, value))
    attended = torch.empty_like(query)
    for span in spans:
        for queries, keys, is_causal in span.parts(sliding_window):
            mask = _band(queries, keys[0], sliding_window, key.device) if is_causal else None
            own_key, own_value = (
                torch.cat([part[:, :, span] for span in keys], 2) for part in (key, value)
            )
            attended[:, :, queries] = scaled_dot_product_attention(
                query[:, :, queries],
                own_key,
                own_value,
                mask,
                is_causal=is_causal and mask is None,
                scale=scaling,
                enable_gqa=query.shape[1] != key.shape[1],
            )
    return attended.transpose(1, 2), None


def _band(queries: slice, keys: slice, window: int | None, device: torch.device) -> Tensor | None:
    """Return which keys a text's queries see, bool [Q, K]; None where all before them."""
    if keys.start == queries.start:
        return None
    places = torch.arange(queries.start, queries.stop, device=device)[:, None]
    sources = torch.arange(keys.start, keys.stop, device=device)
    return (sources <= places) & (places - sources < (window or keys.stop))


class CanvasBody:
    """The model without its head. A canvas, an overlay in the batch, is its decoder's, and
    the text its encoder's, which has the same weights but for one number a layer. Nothing is
    padded, so that a token is computed alike in any batch.
    """

    max_padding = 1.0
    multiple = 1
    takes_overlays = True

    def __init__(
        self,
        embed: Callable[[Tensor], Tensor],
        layers: Sequence[Any],
        scalars: Tensor,
        rotation: nn.Module,
        norm: nn.Module,
        conditioning: Any,
        device: torch.device,
    ) -> None:
        """scalars: what the layers' outputs are multiplied by, of the text and of canvases,
        [L, 2]. conditioning: joins a canvas's embeddings and soft ones, [T, d] each.
        """
        self._embed, self._layers, self._scalars = embed, layers, scalars
        self._rotation, self._norm, self._device = rotation, norm, device
        self._conditioning = conditioning

    def __call__(self, batch: TextBatch, rows: Ids) -> Tensor:
        assert batch.groups is not None
        shape, is_real = batch.input_ids.shape, batch.is_real
        is_token = np.ones(shape, np.bool_) if is_real is None else is_real
        every = (batch.input_ids, np.broadcast_to(batch.positions, shape), batch.groups)
        ids, positions, groups = (part[is_token] for part in every)
        ends = is_token.sum(1).cumsum()[:-1]
        spans = spans_of(np.split(groups, ends), np.split(positions, ends))
        index = is_token.ravel().cumsum() - 1
        arrays = ids, positions[None], (groups > 0).astype(np.int64), index[rows]
        tokens, places, stream, answers = on_device(self._device, *arrays)
        states = self._embed(tokens)
        states = self._conditioned(states, stream, batch.soft, index)[None]
        kinds = [layer.self_attn.layer_type for layer in self._layers]
        rotations = {kind: self._rotation(states, places, kind) for kind in set(kinds)}
        for layer, kind, scalars in zip(self._layers, kinds, self._scalars, strict=True):
            states = layer(states, position_embeddings=rotations[kind], attention_mask=spans)
            states = states.to(self._device) * scalars[stream][:, None]  # a map may have moved them
        result: Tensor = self._norm(states[0, answers])
        return result

    def _conditioned(
        self, states: Tensor, stream: Tensor, soft: tuple[Ids, Tensor] | None, index: Ids
    ) -> Tensor:
        """Return what goes into the layers, [T, d], of embeddings; index: of each row of the
        flattened batch among the tokens.
        """
        # Where there is no earlier prediction: of zeros the feed-forward block makes zeros.
        bare = torch.where(stream[:, None] > 0, self._conditioning.post_norm(states), states)
        if soft is None:
            return bare
        rows, embeddings = soft
        [places] = on_device(self._device, index[rows])
        return bare.index_copy(0, places, self._conditioning(states[places], embeddings))
