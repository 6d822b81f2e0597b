"""The facts about a loaded model."""

from dataclasses import dataclass
from typing import Literal

from dise_core.models.attention import BIDIRECTIONAL, Attention, BlockCausal, Causal
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


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The facts about a loaded model.

    name: as the user gave it. vocab_size: all token ids are below it. max_length: the
    longest text it accepts, in tokens. tempered_confidence: whether its published sampler
    ranks candidates by their probability after temperature, top-k and top-p rather than
    before; "drawn": only above temperature 0. last_block: how its published sampler
    writes the last block of a response; only block-causal attention has blocks of its
    own.
    """

    name: str
    vocab_size: int
    max_length: int
    special: SpecialTokens
    attention: Attention = BIDIRECTIONAL
    tempered_confidence: TemperedConfidence = False
    last_block: LastBlockRule = "masks"

    @property
    def is_autoregressive(self) -> bool:
        """Whether earlier tokens predict each one; position 0 then has no answer."""
        return isinstance(self.attention, Causal)

    @property
    def block_length(self) -> int | None:
        """The length of its own blocks under block-causal attention, else None."""
        return self.attention.length if isinstance(self.attention, BlockCausal) else None

    @property
    def block_origin(self) -> BlockOrigin:
        """Where blocks count from: the text's start if attention is block-causal."""
        return "response" if self.block_length is None else "text"
