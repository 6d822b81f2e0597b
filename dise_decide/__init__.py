"""Typed questions about a text, answered with probabilities. Users import `dise`."""

from dise_decide.calibration import DecisionCalibration
from dise_decide.outputs import (
    AnswerSet,
    ChoiceAnswer,
    DecisionOutput,
    Diagnostics,
    PredicateAnswer,
    ScoreAnswer,
)
from dise_decide.params import DecisionParams
from dise_decide.questions import (
    Choice,
    ChoiceQuestion,
    Option,
    PredicateQuestion,
    Question,
    ScoreQuestion,
)

__all__ = [
    "AnswerSet", "Choice", "ChoiceAnswer", "ChoiceQuestion", "DecisionCalibration",
    "DecisionOutput", "DecisionParams", "Diagnostics", "Option", "PredicateAnswer",
    "PredicateQuestion", "Question", "ScoreAnswer", "ScoreQuestion",
]  # fmt: skip
