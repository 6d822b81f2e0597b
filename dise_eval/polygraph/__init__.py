"""Our models and scorers in lm-polygraph's benchmarks."""

from dise_eval.polygraph.calculators import calculators
from dise_eval.polygraph.estimator import DiseEstimator
from dise_eval.polygraph.graded import Graded
from dise_eval.polygraph.model import DiseModel

__all__ = ["DiseEstimator", "DiseModel", "Graded", "calculators"]
