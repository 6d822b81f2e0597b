"""The facts about a loaded model."""

from dataclasses import dataclass, replace
from typing import Literal

from dise_core.blocks import BlockGrid
from dise_core.errors import InputError
from dise_core.models.attention import BIDIRECTIONAL, Attention, BlockCausal, Canvases, Causal
from dise_core.sequence import BlockOrigin, SpecialTokens

TemperedConfidence = bool | Literal["drawn"]
"""See ModelInfo."""

AnswersFor = Literal["own", "next"]
"""The position that a row of logits predicts: its own, or the next one. With "next", row
0 also answers for position 0, except under causal attention, where position 0 has no
answer; under block-causal attention the finished block before a block answers for its
first token."""

LastBlockRule = Literal["masks", "alone", "ends"]
"""How a response is written that ends inside a block: with masks up to the block's
border, which are written too and then cut; alone, as if the block were that short; or
with end tokens up to the border, as a finished text is read.
"""

NoiseKind = Literal["masks", "uniform"]
"""What noise puts in a token's place: a mask, or any token of the vocabulary."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The facts about a loaded model.

    name: as the user gave it. vocab_size: all token ids are below it. max_length: the
    longest text it accepts, in tokens. tempered_confidence: whether its published sampler
    ranks candidates by their probability after temperature, top-k and top-p rather than
    before; "drawn": only above temperature 0. last_block: how its published sampler
    writes the last block of a response; only block-causal attention and canvases are
    blocks of its own. noise: what hides a token. is_time_conditioned: whether the model
    is given the noise level, `Read.noise`. fill_id: what stands behind the end token of a
    finished text up to its block's border; None: more end tokens. writes_canvases:
    whether Candidates of a hidden canvas are a canvas that was written in steps of its
    own, by a sampler that takes no options: so does a server.

    Under uniform noise special.mask_id is vocab_size: no token, but what stands in a
    plan's texts where one is hidden. `completed` puts drawn tokens there, so that
    algorithms are the same for both. Raises InputError for uniform noise beside a mask
    token, causal or block-causal attention.
    """

    name: str
    vocab_size: int
    max_length: int
    special: SpecialTokens
    attention: Attention = BIDIRECTIONAL
    tempered_confidence: TemperedConfidence = False
    last_block: LastBlockRule = "masks"
    noise: NoiseKind = "masks"
    is_time_conditioned: bool = False
    fill_id: int | None = None
    writes_canvases: bool = False

    def __post_init__(self) -> None:
        if self.noise == "masks":
            return
        hides = isinstance(self.attention, Causal | BlockCausal)
        if hides or self.special.mask_id not in (None, self.vocab_size):
            raise InputError(
                f"{self.name!r:.80} has uniform noise, so it can have neither a mask "
                "token nor attention that hides a part of the text: leave both out",
                "info",
            )
        special = replace(self.special, mask_id=self.vocab_size, is_drawn=True)
        object.__setattr__(self, "special", special)

    @property
    def mask_token_id(self) -> int | None:
        """The id of the mask token; None without one, as under uniform noise."""
        return None if self.noise == "uniform" else self.special.mask_id

    @property
    def is_autoregressive(self) -> bool:
        """Whether earlier tokens predict each one; position 0 then has no answer."""
        return isinstance(self.attention, Causal)

    @property
    def block_length(self) -> int | None:
        """The length of its own blocks or canvases, None if it has neither."""
        attention = self.attention
        return attention.length if isinstance(attention, BlockCausal | Canvases) else None

    @property
    def canvas_length(self) -> int | None:
        """The length of its canvases, None if it has none."""
        return self.attention.length if isinstance(self.attention, Canvases) else None

    @property
    def block_origin(self) -> BlockOrigin:
        """Where blocks count from: the text's start if attention is block-causal."""
        return "text" if isinstance(self.attention, BlockCausal) else "response"

    def blocks(self, start: int) -> BlockGrid | None:
        """Return its own blocks over a text whose response starts there; None without."""
        if self.block_length is None:
            return None
        return BlockGrid(self.block_length, start if self.block_origin == "response" else 0)
