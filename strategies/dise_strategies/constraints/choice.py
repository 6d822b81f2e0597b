"""Answers that are one of several texts."""

import re
from typing import Annotated

from pydantic import Field, StringConstraints

from dise_core import Constraint
from dise_strategies.constraints.schema.texts import collect, either, ensure_short


class OneOfChoices(Constraint):
    """Answers are one of several texts. To compare how likely they are, rank them."""

    choices: tuple[Annotated[str, StringConstraints(min_length=1)], ...] = Field(
        min_length=1, max_length=1000
    )
    """The texts, of which one may begin with another."""

    def expression(self) -> str:
        return ensure_short(either(collect(map(re.escape, self.choices))))
