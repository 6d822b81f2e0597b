"""Graders decide whether an answer is right. Each has the mode "robust"; those of the
field's common data sets have the mode "d1", which grades like the d1 evaluation code,
too.
"""

from collections.abc import Callable, Mapping

from dise_eval.graders.choice import ChoiceGrader, TextGrader
from dise_eval.graders.countdown import CountdownGrader
from dise_eval.graders.math import MathGrader
from dise_eval.graders.number import NumberGrader
from dise_eval.graders.verdict import Grader, Mode, Verdict

GraderMaker = Callable[[object, Mode], Grader]
"""Makes the grader of a question of its truth, as the data set holds it, and the mode."""

GRADERS: Mapping[str, GraderMaker] = {
    "number": NumberGrader,
    "math": MathGrader,
    "countdown": CountdownGrader.of,
    "choice": ChoiceGrader,
    "text": TextGrader,
}
"""Graders by name. They raise ValueError, with what is allowed, for a wrong truth."""

__all__ = [
    "GRADERS", "CountdownGrader", "Grader", "GraderMaker", "MathGrader", "Mode", "NumberGrader",
    "Verdict",
]  # fmt: skip
