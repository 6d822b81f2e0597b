"""The body of a transformers model; its last layer runs only at the positions that are read.

The last layer's attention, its feed-forward block and the final norm are needed at no other
position, so a Llama-like model of L layers that is read at few positions does about L - 1 layers of
work. The first layer's queries, keys and values depend on the token alone, so they are computed
once for each distinct token: most tokens of a canvas are masks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from dise_adapters.local.attention import norm_of
from dise_adapters.local.kv_cache import CachedPass
from dise_adapters.local.layer import Layer
from dise_adapters.local.linear import Join, linear
from dise_adapters.local.masks import Masks, OverlayMasks
from dise_adapters.local.overlays import Overlays
from dise_adapters.local.padding import key_multiple, padded_rows
from dise_adapters.local.unpadded import Unpadded
from dise_core.arrays import Ids, Mask
from dise_core.errors import InputError
from dise_core.model import Attention, BlockCausal, Causal
from dise_core.records import Record

KNOWN = ("LlamaModel", "Qwen2Model", "Qwen3Model", "Qwen3MoeModel", "Glm4MoeModel")
"""The classes of transformers that OwnBody computes. Named, since importing them takes seconds."""

MASKED = ("sdpa", "eager")
"""The implementations of attention in transformers that take any mask."""


def check_implementation(name: str, attention: Attention) -> None:
    """Raise InputError for an implementation of attention that cannot attend in blocks."""
    if isinstance(attention, BlockCausal) and name not in MASKED:
        raise InputError(
            f"attn_implementation={name!r:.80} cannot attend in blocks; take "
            + " or ".join(map(repr, MASKED)),
            "attn_implementation",
        )


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Texts that run together.

    input_ids: int64 [B, N]. is_real: bool [B, N], False at padding, which follows a text; None
    without padding. rows: what to return of the flattened batch, int64 [R], ascending. cached: what
    to store in the KV cache, and what to read from it. overlays: of texts that have some; never
    together with `cached`.
    """

    input_ids: Ids
    is_real: Mask | None
    rows: Ids
    cached: CachedPass | None = None
    overlays: Overlays | None = None


class Body(Protocol):
    """A model without its head."""

    cache_shape: tuple[int, int, int] | None
    """Layers, key-value heads and head dimension; None if the body cannot use a KV cache."""

    max_padding: float
    """The largest share of a batch that may be padding."""

    multiple: int
    """Texts, and the keys that they attend to, are padded to a multiple of this length."""

    takes_overlays: bool
    """Whether it runs texts with overlays."""

    def __call__(self, batch: Batch) -> Tensor:
        """Return the hidden states [R, d] at the batch's rows."""


class WholeBody:
    """Any transformers model: computes all hidden states and returns those asked for."""

    cache_shape: tuple[int, int, int] | None = None
    max_padding = 0.25
    multiple = 1

    def __init__(
        self,
        model: Any,
        attention: Attention,
        output: str = "last_hidden_state",
        device: torch.device | None = None,
    ) -> None:
        """device: where texts go and states come from; the model's, unless it is on several."""
        self._model, self._attention, self._output = model, attention, output
        self._device = device or model.device
        self.takes_overlays = not isinstance(attention, Causal) and self._obeys_masks()

    def __call__(self, batch: Batch) -> Tensor:
        assert batch.cached is None
        ids, where = _on(self._device, batch.input_ids, batch.rows)
        return self._states(ids, batch.is_real, batch.overlays).flatten(0, 1)[where]

    def _states(self, ids: Tensor, is_real: Mask | None, overlays: Overlays | None) -> Tensor:
        """Return all states [B, N, d]."""
        given: Record = {"attention_mask": self._mask(is_real, tuple(ids.shape), overlays)}
        if overlays is not None:
            [given["position_ids"]] = _on(ids.device, overlays.positions)
        states: Tensor = self._model(ids, use_cache=False, **given)[self._output]
        return states.to(self._device)

    def _mask(
        self, is_real: Mask | None, shape: tuple[int, ...], overlays: Overlays | None
    ) -> Tensor | None:
        """Return the padding's mask [B, N], from which transformers makes its own; in blocks, and
        for overlays, the whole mask, [B, 1, N, N], to be added to the scores.
        """
        device, (batch, length) = self._device, shape
        if overlays is not None:
            mask: Tensor | None = OverlayMasks(self._attention, is_real, overlays, device).all()
        elif isinstance(self._attention, BlockCausal):
            positions = np.arange(length)[None]
            mask = Masks(self._attention, is_real, positions, length, device).all()
        else:
            return None if is_real is None else torch.from_numpy(is_real).to(device, torch.int64)
        scores = torch.zeros((batch, 1, length, length), device=device, dtype=self._model.dtype)
        return scores if mask is None else scores.masked_fill_(~mask, torch.finfo(scores.dtype).min)

    def _obeys_masks(self) -> bool:
        """Return whether the model takes any mask and any positions, from what it computes: a token
        that the others must not see changes nothing for them, but depends on its own position.
        """
        config = self._model.config
        windows = "sliding_attention" in (getattr(config, "layer_types", None) or ())
        if windows or config._attn_implementation not in MASKED:
            return False
        device, groups = self._device, np.array([[0, 0, 0, 1]])
        text, more = (torch.tensor([ids], device=device) for ids in ((0, 1, 2), (0, 1, 2, 3)))
        try:
            plain = self._states(text, None, None)
            first, second = (
                self._states(more, None, Overlays(np.array([[0, 1, 2, at]]), groups))
                for at in (0, 2)
            )
        except Exception:  # a model of any kind, called as not all can be
            return False
        is_hidden = torch.allclose(first[:, :3], plain, rtol=1e-2, atol=1e-2)
        return is_hidden and not torch.equal(first[:, 3], second[:, 3])


class OwnBody:
    """Our forward pass of Llama, Qwen2 and Qwen3: unpadded except in attention, and the last layer
    only at the positions that are read.
    """

    max_padding = 1 / 3
    takes_overlays = True

    @staticmethod
    def covers(body: Any) -> bool:
        """Return whether this class can compute `body`, a transformers model without its head."""
        windows = "sliding_attention" in (getattr(body.config, "layer_types", None) or ())
        kind = type(body)
        is_known = kind.__name__ in KNOWN and kind.__module__.startswith("transformers.models.")
        return is_known and not windows and body.config._attn_implementation == "sdpa"

    def __init__(
        self,
        body: Any,
        attention: Attention,
        join: Join = linear,
        loaded: Callable[..., object] = lambda layer: layer,
    ) -> None:
        """Take over the body's weights layer by layer, so that none is in memory twice; the body
        can then no longer run. join: makes its linear layers. loaded: returns a layer of the body
        with its weights.
        """
        self._embed, self._rotation = body.embed_tokens, body.rotary_emb
        self._norm, self._attention = norm_of(body.norm), attention
        count = len(body.layers)
        self._layers = [Layer(loaded(body.layers.pop(0)), join) for _ in range(count)]
        first, is_causal = self._layers[0].attention, isinstance(attention, Causal)
        shape = (len(self._layers), first.num_keys, first.head_dim)
        self.cache_shape = None if is_causal else shape
        self.multiple = key_multiple(body.norm.weight.device)

    def __call__(self, batch: Batch) -> Tensor:
        device, shape, cached = self._embed.weight.device, batch.input_ids.shape, batch.cached
        unpadded = Unpadded.of(batch.is_real, shape, device)
        asked = _Asked.of(batch.rows, unpadded, device)
        # Up to its attention the first layer sees tokens alone: compute each distinct one once.
        ids, which = np.unique(batch.input_ids, return_inverse=True)
        distinct, token_of = _on(device, padded_rows(ids, device), which.reshape(shape))
        positions, masks = self._positions_and_masks(batch, device)
        mask, last_mask = masks.all(), masks.at(asked.columns)
        states = self._embed(distinct)
        rotation = self._rotation(states, *_on(device, positions))
        hidden = states[unpadded.packed(token_of)]
        heads = self._layers[0].heads(states)[token_of]
        for layer, following in pairwise(self._layers):
            parts = layer.attention.rotated(heads, rotation, cached)
            seen = layer.attention.attend(*parts, mask)
            hidden = layer.transform(hidden, unpadded.packed(seen))
            heads = unpadded.padded(following.heads(hidden))
        last = self._layers[-1]
        query, key, value = last.attention.rotated(heads, rotation, cached)
        query = query.flatten(0, 1)[asked.queries]
        seen = last.attention.attend(query, key, value, last_mask).flatten(0, 1)[asked.answers]
        result: Tensor = self._norm(last.transform(hidden[asked.tokens], seen)[: len(batch.rows)])
        return result

    def _positions_and_masks(
        self, batch: Batch, device: torch.device
    ) -> tuple[Ids, Masks | OverlayMasks]:
        """Return each token's position in its text, int64 [B or 1, N], and the masks."""
        cached, overlays, length = batch.cached, batch.overlays, batch.input_ids.shape[1]
        if overlays is not None:
            masks = OverlayMasks(self._attention, batch.is_real, overlays, device)
            return overlays.positions, masks
        positions = np.arange(length)[None] if cached is None else cached.positions
        is_key, num_keys = batch.is_real, length
        if cached is not None and cached.read is not None:
            is_key, num_keys = cached.is_key, cached.shape[1]
        return positions, Masks(self._attention, is_key, positions, num_keys, device)


@dataclass(frozen=True, slots=True)
class _Asked:
    """The R rows that are read, R padded by padded_rows, also as M queries per text, padded with 0.

    queries: rows of the flattened padded batch, int64 [B, M]. columns: the same as columns of the
    batch, on the host. tokens: the unpadded index of each of the R rows, int64 [R]. answers: the
    index of each among the flattened queries, int64 [R].
    """

    queries: Tensor
    columns: Ids
    tokens: Tensor
    answers: Tensor

    @classmethod
    def of(cls, rows: Ids, unpadded: Unpadded, device: torch.device) -> _Asked:
        """Return the indices with which the last layer selects the rows of the padded batch."""
        batch, length = unpadded.shape
        counts = np.bincount(rows // length, minlength=batch)
        is_query = np.arange(counts.max()) < counts[:, None]
        queries = np.zeros(is_query.shape, np.int64)
        queries[is_query] = rows
        wanted = (unpadded.which(rows), np.flatnonzero(is_query))
        tokens, answers = (padded_rows(each, device) for each in wanted)
        on_device = _on(device, queries, tokens, answers)
        return cls(on_device[0], queries % length, *on_device[1:])


def _on(device: torch.device, *arrays: np.ndarray) -> list[Tensor]:
    return [torch.from_numpy(array).to(device) for array in arrays]
