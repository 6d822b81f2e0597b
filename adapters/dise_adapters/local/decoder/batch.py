"""A forward pass, and the texts that run together in it."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from dise_adapters.local.decoder.kv_cache import CachedPass
from dise_core import Ids, Mask


@dataclass(frozen=True, slots=True, eq=False)
class TextBatch:
    """Texts that run together.

    input_ids: int64 [B, N]. is_real: bool [B, N], False at padding, which follows a text;
    None without padding. positions: each token's in its text, int64 [B or 1, N]. groups:
    0 for tokens of the text, else the number of their overlay, int64 [B, N]; None without
    overlays. cached: what to store in the KV cache, and what to read from it; never
    together with overlays. soft: the rows of the flattened batch that are read beside a
    soft embedding, int64 [S], and these, [S, d].
    """

    input_ids: Ids
    is_real: Mask | None
    positions: Ids
    groups: Ids | None = None
    cached: CachedPass | None = None
    soft: tuple[Ids, Tensor] | None = None

    @property
    def keys(self) -> tuple[Mask | None, int]:
        """Which keys are not padding, bool [B, K], None if all; and K."""
        if self.cached is not None and self.cached.read is not None:
            return self.cached.is_key, self.cached.shape[1]
        return self.is_real, self.input_ids.shape[1]


class ForwardPass(Protocol):
    """A model without its head."""

    max_padding: float
    """The largest share of a batch that may be padding."""

    multiple: int
    """Texts, and the keys that they attend to, are padded to a multiple of this."""

    takes_overlays: bool
    """Whether it runs texts with overlays."""

    def __call__(self, batch: TextBatch, rows: Ids) -> Tensor:
        """Return states [R, d] at rows of the flattened batch, int64 [R], ascending."""
