"""What a reviser changed in a response: its trace, and its JSON form."""

from dataclasses import dataclass
from typing import NamedTuple

from dise_core.arrays import Ids
from dise_core.records import json_number
from dise_core.sequence import TokenSequence


class RevisedToken(NamedTuple):
    """One token that was written again: its position in the response, counted from 0,
    what stood there and what was written; `new` is None where the response now ends
    before it.
    """

    position: int
    old: int
    new: int | None
    old_text: str = ""
    new_text: str | None = None

    def to_dict(self) -> dict[str, object]:
        """Return its JSON form."""
        new = None if self.new is None else {"id": self.new, "text": self.new_text}
        old = {"id": self.old, "text": self.old_text}
        return {"position": self.position, "old": old, "new": new}


@dataclass(frozen=True, slots=True)
class Revision:
    """One round of a reviser: the tokens that it had written again, those that came out
    the same included, what it judged the text by, before and after, where higher is
    better, what the round cost, and whether its text took the place of the one before.
    """

    tokens: tuple[RevisedToken, ...]
    score_before: float
    score_after: float
    nfe: int
    is_accepted: bool

    @property
    def num_changed(self) -> int:
        """The number of tokens that differ from the draft's."""
        return sum(token.new != token.old for token in self.tokens)

    def to_dict(self) -> dict[str, object]:
        """Return its JSON form."""
        return {
            "accepted": self.is_accepted,
            "score_before": json_number(self.score_before),
            "score_after": json_number(self.score_after),
            "nfe": self.nfe,
            "tokens": [token.to_dict() for token in self.tokens],
        }


def rewritten(
    before: TokenSequence, after: TokenSequence, positions: Ids
) -> tuple[RevisedToken, ...]:
    """Return what became of tokens at positions, int64 [M]; the text may be shorter."""
    start, ids = before.prompt_length, after.ids.tolist()
    return tuple(
        RevisedToken(at - start, int(before.ids[at]), ids[at] if at < len(ids) else None)
        for at in positions.tolist()
    )
