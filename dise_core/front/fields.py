"""The values of a JSON answer, each with how sure the model is of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np

from dise_core.arrays import Floats, Ids, Mask
from dise_core.constraints.automaton import Automaton
from dise_core.constraints.spans import TYPES, Spanned, values_of
from dise_core.records import json_number
from dise_core.scoring.calibration import Calibration


@dataclass(frozen=True, slots=True)
class Field:
    """A value of a JSON answer, with its score in nats.

    type: as a JSON schema names it. score, least: the sum and the least of the
    log-probabilities of its tokens that the constraint did not force; None without such.
    span, tokens: where it stands in the text and in
    `CompletionOutput.tokens`, half-open; `tokens` has those that end it. forced: whether
    no other value was valid. probability: of being right; abstained: whether the score is
    below the threshold, where the value becomes None if null is valid; None without a
    calibration. Of an object or an array all this is about which keys there are, and
    where it ends.
    """

    value: object
    type: str
    score: float | None
    least: float | None
    span: tuple[int, int]
    tokens: tuple[int, int]
    forced: bool
    probability: float | None = None
    abstained: bool | None = None

    @property
    def is_leaf(self) -> bool:
        """Whether it holds no other field."""
        return self.type not in ("object", "array")

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form; objects and arrays are left to their values."""
        value = json_number(self.value) if isinstance(self.value, float) else self.value
        numbers = {"score": json_number(self.score), "least": json_number(self.least)}
        record = ({"value": value} if self.is_leaf else {}) | {"type": self.type} | numbers
        names = ("probability", "abstained", "forced", "span", "tokens")
        return record | {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class JsonAnswer:
    """A response that is JSON of a constraint. automaton: which texts it allows. pieces:
    what each token adds to the text. logprobs: of the tokens, float64 [R], NaN where
    unknown. is_forced: which were the only valid ones, bool [R].
    """

    automaton: Automaton
    pieces: Sequence[str]
    logprobs: Floats
    is_forced: Mask

    def fields(self, calibration: Calibration | None) -> Mapping[str, Field]:
        """Return the fields by JSON pointer, in the text's order."""
        values = values_of(self._text)
        return {pointer: self._field(pointer, values[pointer], calibration) for pointer in values}

    def _field(self, pointer: str, spanned: Spanned, calibration: Calibration | None) -> Field:
        kind = TYPES[type(spanned.value)]
        tokens = np.unique(np.concatenate([self._tokens(*span) for span in spanned.evidence]))
        logprobs = self.logprobs[tokens[~self.is_forced[tokens]]]
        logprobs = logprobs[~np.isnan(logprobs)]
        score = float(logprobs.sum()) if len(logprobs) else None
        fit = None if calibration is None else calibration.of_field(pointer, kind)
        abstained = None if fit is None or score is None else fit.abstains(score)
        return Field(
            value=None if abstained and self._may_be_null(spanned) else spanned.value,
            type=kind,
            score=score,
            least=float(logprobs.min()) if len(logprobs) else None,
            span=spanned.span,
            tokens=(int(tokens[0]), int(tokens[-1]) + 1),
            forced=bool(self.is_forced[tokens].all()),
            probability=None if fit is None or score is None else fit.probability(score),
            abstained=abstained,
        )

    @cached_property
    def _text(self) -> str:
        return "".join(self.pieces)

    @cached_property
    def _ends(self) -> Ids:
        return np.cumsum([len(piece) for piece in self.pieces])

    def _tokens(self, start: int, stop: int) -> Ids:
        """Return the tokens that spell characters, with empty pieces before them."""
        before, start_token, stop_token = np.searchsorted(
            self._ends, [start - 1, start, stop - 1], "right"
        )
        return np.arange(min(before + 1, start_token) if start else 0, stop_token + 1)

    @cached_property
    def _states(self) -> list[int]:
        """The automaton's states before each byte of the text, and after the last."""
        table, data = self.automaton.next, self._text.encode()
        return [*accumulate(data, lambda state, byte: int(table[state, byte]), initial=0)]

    def _may_be_null(self, spanned: Spanned) -> bool:
        """Whether the text goes on, behind null in that place, as it does."""
        quote, data = isinstance(spanned.value, str), self._text.encode()
        start = len(self._text[: spanned.span[0] - quote].encode())
        stop = len(self._text[: spanned.span[1] + quote].encode())
        state = self.automaton.run(b"null" + data[stop : stop + 1], self._states[start])
        if stop == len(data):
            return bool(self.automaton.accepting[state])
        return state == self._states[stop + 1]
