"""The options that an experiment leaves out, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping

Reasons = Mapping[str, str]

SCORED_BY = ("scorer", "selector", "scorer_settings", "selector_settings")

NAMED_BY_SCORE: Reasons = dict.fromkeys(
    SCORED_BY, "--score names several scorers, each with its selector and settings"
)

NO_REPORT: Reasons = {"logprobs": "experiments look at scores, not at a report on every token"}

SAMPLED: Reasons = {**NAMED_BY_SCORE, **NO_REPORT, "best_of": "all n answers are kept and compared"}

FOLLOWED: Reasons = {
    **NO_REPORT,
    **dict.fromkeys(SCORED_BY, "answers are graded, not scored"),
    **dict.fromkeys(("n", "best_of", "stop_at"), "one answer to a question is graded"),
}

PROBED: Reasons = {
    **NO_REPORT,
    **dict.fromkeys(SCORED_BY, "texts are probed, not scored"),
    **dict.fromkeys(("n", "best_of", "stop_at"), "one text a question is probed"),
}
