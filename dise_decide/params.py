"""The options of typed questions."""

from __future__ import annotations

from typing import Literal

from dise_core.params.base import Params


class DecisionParams(Params):
    """How typed questions about an input are asked."""

    joint: bool = False
    """Ask all questions in one text, which is one sequence in a forward pass, instead of each in a
    text of its own, where no answer depends on the other questions. Questions that do not fit into
    one text are asked apart, and a warning says so."""
    layout: Literal["questions", "cloze"] = "questions"
    """questions: numbered, with their possible answers, after the input. cloze: nothing is added;
    each question's instructions are the text right before its slot."""

    def over(self, defaults: DecisionParams) -> DecisionParams:
        """Return what is set here, and what the defaults set of the rest."""
        fields = DecisionParams.model_fields
        own = {name: getattr(self, name) for name in fields if name in self.model_fields_set}
        return DecisionParams(**defaults.model_dump(exclude_unset=True) | own)


class ServedDecisions(Params):
    """What the operator of a server says of all decisions."""

    decision_calibration: str | None = None
    """A file of dise calibrate --decisions, for probabilities of being right."""
