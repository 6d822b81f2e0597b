"""A text as token ids: the prompt P, the response R, what follows it, blocks, special tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from dise_core.arrays import Ids, Mask
from dise_core.blocks import BlockGrid
from dise_core.errors import InputError, shown
from dise_core.history import Writing
from dise_core.rule import TextRule

BlockOrigin = Literal["response", "text"]
"""Where blocks count from: the start of the response, or of the whole text, prompt included."""

Spell = Callable[[Ids], tuple[bytes, ...]]
"""What tells the UTF-8 bytes of each of a text's tokens, as `Tokenizer.spell`."""


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """The ids of a model's mask and end tokens; `mask_id` is None for a model without a
    mask token.

    eos_ids: all end tokens. eos_id: the one that pads a response, None if the model has
    none. is_drawn: whether the mask is no token, and stands for one that is drawn, of
    mask_id tokens in all: uniform noise. Raises InputError for a mask that is an end token.
    """

    mask_id: int | None
    eos_ids: frozenset[int]
    eos_id: int | None = None
    is_drawn: bool = False

    def __post_init__(self) -> None:
        if self.mask_id is not None and self.mask_id in (*self.eos_ids, self.eos_id):
            raise InputError(
                f"token {self.mask_id} cannot be both the mask and an end token: a text that is "
                "hidden would be one that has ended. Name the model's own mask token.",
                "mask_token_id",
            )

    @property
    def masking_id(self) -> int:
        """The mask_id. Raises InputError for a model that has none."""
        if self.mask_id is None:
            raise InputError(
                "this model has no mask token; use a diffusion language model", "model"
            )
        return self.mask_id

    def is_end(self, ids: Ids) -> Mask:
        """Return a mask in the shape of ids, True where an id is an end token."""
        is_end = np.zeros(np.shape(ids), np.bool_)
        for end in self.eos_ids:
            is_end |= ids == end
        return is_end


@dataclass(frozen=True, slots=True, eq=False)
class TokenSequence:
    """The paper's text X = [P; R], or for a gap in a text [P; R; S], with the response in
    the gap.

    ids: int64 [N]; the first `prompt_length` are the prompt, the last `suffix_length` the
    suffix S, and the rest the response. `block_length`: tokens per block of the response;
    `origin`: where the blocks count from. `max_length`: the longest text that the model
    accepts, if known. `writing`: how a response was written, for `own_writing`. `rule`:
    what the response must match, None for a free one. `spell`: of the model's tokenizer,
    for `pieces`. `canvas_length`: of a model that writes in canvases. Raises InputError
    for bad lengths.
    """

    ids: Ids
    prompt_length: int
    special: SpecialTokens = field(default_factory=lambda: SpecialTokens(None, frozenset()))
    block_length: int = 32
    max_length: int | None = None
    origin: BlockOrigin = "response"
    writing: Writing | None = None
    suffix_length: int = 0
    rule: TextRule | None = None
    spell: Spell | None = None
    canvas_length: int | None = None

    def __post_init__(self) -> None:
        num_tokens = len(self.ids)
        if not 0 <= self.suffix_length <= num_tokens:
            raise InputError(
                f"suffix_length {self.suffix_length} is outside 0..{num_tokens}", "suffix_length"
            )
        if not 0 <= self.prompt_length <= self.response_end:
            raise InputError(
                f"prompt_length {self.prompt_length} is outside 0..{self.response_end}",
                "prompt_length",
            )

    @classmethod
    def of(
        cls,
        prompt_ids: Sequence[int] | Ids,
        response_ids: Sequence[int] | Ids,
        special: SpecialTokens,
        block_length: int,
        max_length: int | None = None,
        origin: BlockOrigin = "response",
        spell: Spell | None = None,
        canvas_length: int | None = None,
    ) -> TokenSequence:
        """Return the text [P; R]. Raises InputError for other than lists of integers."""
        ids = np.concatenate([as_ids(prompt_ids), as_ids(response_ids)])
        facts = special, block_length, max_length, origin
        return cls(ids, len(prompt_ids), *facts, spell=spell, canvas_length=canvas_length)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def blocks(self) -> BlockGrid:
        """The grid of blocks over the text's positions."""
        return BlockGrid(self.block_length, self.prompt_length if self.origin == "response" else 0)

    @property
    def prompt(self) -> Ids:
        """The prompt's ids, int64 [P]."""
        return self.ids[: self.prompt_length]

    @property
    def response_end(self) -> int:
        """Where the response ends in the text: N where nothing follows it."""
        return len(self.ids) - self.suffix_length

    @property
    def response(self) -> Ids:
        """The response's ids, end tokens included, int64 [R]."""
        return self.ids[self.prompt_length : self.response_end]

    @property
    def suffix(self) -> Ids:
        """The ids of what follows the response, int64 [S]."""
        return self.ids[self.response_end :]

    @property
    def response_positions(self) -> Ids:
        """The positions of the response in the text, int64 [R]."""
        return np.arange(self.prompt_length, self.response_end)

    @property
    def text_positions(self) -> Ids:
        """The ascending positions of the response without end tokens, int64 [<= R]."""
        return self.response_positions[~self.special.is_end(self.response)]

    @property
    def is_forced(self) -> Mask:
        """Which tokens of a finished response its constraint forced, bool [R]."""
        response = self.response
        return np.zeros(len(response), np.bool_) if not self.rule else self.rule.is_forced(response)

    @property
    def pieces(self) -> tuple[bytes, ...]:
        """The UTF-8 bytes of each token of the whole text, [N]; b"" for masks, end tokens
        and other special ones. Found anew each time. Raises InputError without `spell`.
        """
        if self.spell is None:
            raise InputError(
                "A TokenSequence made by hand does not know what its tokens spell: give "
                "it spell=tokenizer.spell, where the tokenizer is the model's."
            )
        is_silent = self.special.is_end(self.ids) | (self.ids == self.special.mask_id)
        pairs = zip(self.spell(self.ids), is_silent.tolist(), strict=True)
        return tuple(b"" if silent else piece for piece, silent in pairs)

    @property
    def response_bytes(self) -> bytes:
        """The response's text in UTF-8. Raises InputError without `spell`."""
        return b"".join(self.pieces[self.prompt_length : self.response_end])

    def covering(self, start: int, stop: int) -> Ids:
        """Return the positions in the text, ascending int64, of the response's tokens
        that hold any of its bytes [start, stop). Raises InputError without `spell`.
        """
        pieces = self.pieces[self.prompt_length : self.response_end]
        lengths = np.array([len(piece) for piece in pieces], np.int64)
        ends = lengths.cumsum()
        is_covered: Mask = np.maximum(ends - lengths, start) < np.minimum(ends, stop)
        return self.prompt_length + np.flatnonzero(is_covered)

    def ended(self, end_id: int | None) -> TokenSequence:
        """Return the text with that end token, unless it is ended, full, or a gap's."""
        has_end = len(self) > 0 and bool(self.special.is_end(self.ids[-1:])[0])
        is_full = self.max_length is not None and len(self) >= self.max_length
        if end_id is None or has_end or is_full or self.suffix_length:
            return self
        return replace(self, ids=np.append(self.ids, end_id))

    def own_writing(self) -> Writing | None:
        """Return how this text was written; None if given, or changed since."""
        is_own = self.writing is not None and np.array_equal(self.writing.ids, self.ids)
        return self.writing if is_own else None

    def at(self, positions: Ids) -> TokenSequence:
        """Return the text of the tokens at positions, int64 [K], of any of its parts."""
        writing = self.own_writing()
        kept = None if writing is None else writing.at(positions)
        return replace(self, ids=self.ids[positions], writing=kept)

    def with_masks(self, positions: Ids) -> Ids:
        """Return a masked copy, int64 [N]. Raises InputError without a mask token."""
        masked = self.ids.copy()
        masked[positions] = self.special.masking_id
        return masked

    def noise_in(self, hidden: Ids) -> float | None:
        """Return the noise level of a copy with masks at ascending positions, int64 [M],
        for `Read.noise`: their share of the response's tokens, or of all where others are
        hidden too. None where each block has its own.
        """
        if self.origin == "text":
            return None
        if len(hidden) == 0:
            return 0.0
        is_response = self.prompt_length <= hidden[0] and hidden[-1] < self.response_end
        num_tokens = self.response_end - self.prompt_length if is_response else len(self.ids)
        return len(hidden) / num_tokens

    def mask_of(self, positions: Ids | Sequence[int] | slice) -> Mask:
        """Return bool [N], True at the positions."""
        mask = np.zeros(len(self.ids), dtype=np.bool_)
        mask[positions] = True
        return mask


def as_ids(ids: Sequence[int] | Ids) -> Ids:
    """Return int64 [N >= 0]. Raises InputError for other than a list of integers."""
    try:
        array = np.asarray(ids)
    except Exception:  # whatever the array protocol of an object raises
        array = np.array(None)
    if array.ndim != 1 or not (array.size == 0 or np.issubdtype(array.dtype, np.integer)):
        raise InputError(
            f"token ids must be a flat list of integers, not {shown(ids)}", "token_ids"
        )
    return array.astype(np.int64)


def are_within(ids: Ids, count: int) -> bool:
    """Return whether all ids, integers of any shape, are in [0, count)."""
    if ids.size == 0:
        return True
    # A negative number, taken as unsigned, is larger than any id. The array's own max is
    # slower.
    unsigned = ids.view(np.uint64) if ids.dtype == np.int64 else ids.astype(np.uint64)
    return int(unsigned.item(unsigned.argmax())) < count


def check_token_ids(ids: Ids, vocab_size: int, parameter: str = "token_ids") -> None:
    """Raise InputError, naming the first bad id, unless all are in [0, vocab_size)."""
    if not are_within(ids, vocab_size):
        position = int(np.argmax((ids < 0) | (ids >= vocab_size)))
        error = InputError(
            f"token id {int(ids[position])} at position {position} is outside the "
            f"vocabulary: ids are 0 to {vocab_size - 1}",
            parameter,
        )
        raise error if parameter == "token_ids" else error.at(parameter)
