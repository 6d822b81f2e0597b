"""Is an answer right? Each grader has the mode "d1", which counts as the field's common harness
does, and "robust".
"""

from dise_app.evaluation.graders.countdown import CountdownGrader
from dise_app.evaluation.graders.math import MathGrader
from dise_app.evaluation.graders.number import NumberGrader
from dise_app.evaluation.graders.verdict import Grader, Mode, Verdict

__all__ = ["CountdownGrader", "Grader", "MathGrader", "Mode", "NumberGrader", "Verdict"]
