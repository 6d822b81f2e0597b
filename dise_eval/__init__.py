"""The laboratory: experiments, data sets, graders, reports and calibrations.

The names exported here are public, for authors of data sets; docs/reference lists them.
"""

from typing import TYPE_CHECKING

from dise_core.lazy import lazily

if TYPE_CHECKING:
    from dise_eval.datasets.dataset import DataRow, Dataset, Hub, Problem, UnsuitableRowError
    from dise_eval.datasets.questions import ProblemSet, load
    from dise_eval.graders import CountdownGrader, Grader, GraderMaker, Verdict
    from dise_eval.graders.conformance import check_grader
    from dise_eval.statistics.metrics import prr

HOMES = {
    "dise_eval.datasets.dataset": "DataRow Dataset Hub Problem UnsuitableRowError",
    "dise_eval.datasets.questions": "ProblemSet load",
    "dise_eval.graders": "CountdownGrader Grader GraderMaker Verdict",
    "dise_eval.graders.conformance": "check_grader",
    "dise_eval.statistics.metrics": "prr",
}

__getattr__ = lazily(__name__, HOMES)

__all__ = [
    "CountdownGrader", "DataRow", "Dataset", "Grader", "GraderMaker", "Hub", "Problem",
    "ProblemSet", "UnsuitableRowError", "Verdict", "check_grader", "load", "prr",
]  # fmt: skip
