"""Our models and scorers in lm-polygraph's benchmarks: UEManager runs them with its own estimators,
metrics and tables.
"""

from dise_app.polygraph.calculators import calculators
from dise_app.polygraph.estimator import DiseEstimator
from dise_app.polygraph.graded import Graded
from dise_app.polygraph.model import DiseModel

__all__ = ["DiseEstimator", "DiseModel", "Graded", "calculators"]
