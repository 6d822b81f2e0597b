"""The options of typed questions."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import model_validator

from dise_core.params.base import Params
from dise_core.params.marks import Replaces, remaining

ReadingName = Literal["menu", "each"]

ConfidenceName = Literal["label-mass", "top", "margin", "entropy", "above-chance"]


class DecisionParams(Params):
    """How typed questions about an input are asked, and what is made of the answers."""

    reading: Annotated[ReadingName, Replaces(("joint", "layout"))] = "menu"
    """menu: a text shows all options, in an order of their own. each: a text asks of each
    option whether it is the answer, yes or no. Probabilities are the mean over a
    question's texts, normalised."""
    confidence: ConfidenceName = "label-mass"
    """What stands for the confidence of an answer, p being the probability of its
    likeliest option of K. label-mass: p times the label mass; top: p; margin: p minus the
    second highest; entropy: 1 - entropy / ln K; above-chance: (K p - 1) / (K - 1)."""
    joint: Annotated[bool, Replaces(("reading",))] = False
    """Ask all questions in one text, which is one sequence in a forward pass, instead of
    each in texts of its own, where no answer depends on the other questions. Questions
    that do not fit into one text are asked apart, and a warning says so. Goes with
    reading menu alone."""
    layout: Annotated[Literal["questions", "cloze"], Replaces(("reading",))] = "questions"
    """questions: numbered, with their possible answers, after the input. cloze: nothing
    is added; each question's instructions are the text right before its slot. Goes with
    reading menu alone."""

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        for option, is_set in (("joint", self.joint), ("layout cloze", self.layout == "cloze")):
            if is_set and self.reading != "menu":
                raise ValueError(f"{option} goes with reading menu alone, not with {self.reading}")
        return self

    def over(self, defaults: DecisionParams) -> DecisionParams:
        """Return these settings, and the defaults that go with them."""
        fields = DecisionParams.model_fields
        settings = self.model_dump(include={*fields}, exclude_unset=True)
        set_there = defaults.model_dump(exclude_unset=True)
        rest = remaining(DecisionParams, set_there, settings, lambda name: fields[name].default)
        return DecisionParams(**rest | settings)


class ServedDecisions(Params):
    """What the operator of a server says of all decisions."""

    decision_calibration: str | None = None
    """A file of dise calibrate --decisions, for probabilities of being right."""
