"""Logits processors change the rows that the tokens of a response are chosen from."""

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any

from dise_core.arrays import Ids
from dise_core.scoring.checks import broken
from dise_core.scoring.faults import call
from dise_core.scoring.strategy import Strategy

FORBIDDEN = -1e4
"""What -inf counts as: such a token is written only where no other may be."""


@dataclass(frozen=True, slots=True, eq=False)
class LogitsContext:
    """What rows of logits are about: the text under way, int64 [N], with mask_id where
    nothing is written yet, and the position of each row, int64 [M].
    """

    token_ids: Ids
    positions: Ids
    mask_id: int


class LogitsProcessor(Strategy):
    """Changes the logits from which each step chooses tokens: a watermark, or a rule
    against repetition.
    """

    @abstractmethod
    def process(self, rows: Any, context: LogitsContext) -> Any:
        """Return the changed rows, [M, V], of the type, shape, dtype and device that they
        came in, without NaN and +inf; -inf counts as -1e4. `rows` itself may be changed.

        They are where the model's logits are: tensors of torch, float32, or of a model in
        numpy, such as ToyPredictor, arrays. Guidance is in them; bias, temperature, top_p,
        forbidden tokens and a constraint come after. A step's rows may come in several
        calls, so no row may depend on another.

        What is written, its log-probabilities, such as those that `written` averages, and
        confidences are those of the changed rows; passes that score a text, or regenerate
        its tokens, are the model's own.
        """


@dataclass(frozen=True, slots=True, eq=False)
class BoundProcessor:
    """A processor and the text of a Read, whose readout holds both."""

    processor: LogitsProcessor
    context: LogitsContext

    def __call__(self, rows: Any, part: slice) -> Any:
        """Return the changed logits of a part of the Read's positions. Raises PluginError
        for what are no such rows, PlanError for what a third party's processor raises.
        """
        role, form = "logits processor", _form(rows)
        context = replace(self.context, positions=self.context.positions[part])
        changed = call(role, self.processor, self.processor.process, rows, context)
        if (answer := _form(changed)) != form:
            raise broken(role, self.processor, f"rows like its own, {form}", str(answer))
        if not bool((changed < math.inf).all()):
            raise broken(role, self.processor, "rows without NaN and +inf", "")
        return changed.clip(FORBIDDEN)


def _form(rows: Any) -> list[str]:
    """Return what must stay as it is."""
    facts = (getattr(rows, name, "none") for name in ("shape", "dtype", "device"))
    return [type(rows).__name__, *map(str, facts)]
