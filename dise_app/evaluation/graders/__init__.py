"""Graders decide whether an answer is right. Each has the mode "d1", which grades like the d1
evaluation code, and the mode "robust".
"""

from dise_app.evaluation.graders.countdown import CountdownGrader
from dise_app.evaluation.graders.math import MathGrader
from dise_app.evaluation.graders.number import NumberGrader
from dise_app.evaluation.graders.verdict import Grader, Mode, Verdict

__all__ = ["CountdownGrader", "Grader", "MathGrader", "Mode", "NumberGrader", "Verdict"]
