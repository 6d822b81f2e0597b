"""The options of params.py that an entry point leaves out, each with its reason. All others must be
available at every entry point; a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping

Reasons = Mapping[str, str]

NAMED_BY_SCORE: Reasons = dict.fromkeys(
    ("scorer", "selector", "scorer_settings"),
    "--score names several scorers, each with its selector and settings",
)

UNCALIBRATED: Reasons = {
    "calibration": "experiments fit their own maps, each answer's on other questions"
}

NO_REPORT: Reasons = {"logprobs": "experiments look at scores, not at a report on every token"}

SAMPLED: Reasons = {
    **NAMED_BY_SCORE,
    **NO_REPORT,
    **UNCALIBRATED,
    "best_of": "all n answers are kept and compared",
}
"""Several answers per question."""

LIKELIHOOD: Reasons = {**NAMED_BY_SCORE, **UNCALIBRATED}
"""Given candidates or answers."""

LENGTH: Reasons = {
    **NO_REPORT,
    **UNCALIBRATED,
    **dict.fromkeys(("length", "length_settings"), "the length controllers are what is compared"),
    "max_tokens": "--base-length names several",
    **dict.fromkeys(("n", "best_of", "stop_at"), "each controller writes one answer"),
}
"""One answer per question and length controller."""

REVISION: Reasons = {
    **NO_REPORT,
    **UNCALIBRATED,
    **dict.fromkeys(("length", "length_settings"), "length controllers are compared"),
    **dict.fromkeys(("tokens_per_step", "steps"), "--rate names several"),
    **dict.fromkeys(("n", "best_of", "stop_at"), "--num-answers names several"),
}
"""One answer per question, and rate, reviser or what else might be done with the passes."""

PROBED: Reasons = {
    **NO_REPORT,
    **UNCALIBRATED,
    **dict.fromkeys(("scorer", "selector", "scorer_settings"), "texts are probed, not scored"),
    **dict.fromkeys(("n", "best_of", "stop_at"), "one text a question is probed"),
}
"""The model's own answers, or given texts."""

RESPONSE: Reasons = {
    "n": "a response is one message; best_of writes several and keeps the best",
    "stop": "OpenAI's API has no stop texts there",
    "max_tokens": "it is max_output_tokens there",
    "logprobs": "include asks for them there, and top_logprobs says how many",
}
"""OpenAI's newer API, in its own terms."""

LEFT_OUT: Mapping[str, Reasons] = {
    "dise generate": {},
    "dise score": {},
    "dise rank": {},
    "dise decide": {},
    "dise serve": {},
    "dise eval uncertainty": SAMPLED,
    "dise eval best-of-n": SAMPLED,
    "dise eval given": LIKELIHOOD,
    "dise eval likelihood": LIKELIHOOD,
    "dise eval length": LENGTH,
    "dise eval revision": REVISION,
    "dise analyze ranks": PROBED,
    "dise analyze distances": PROBED,
    "dise analyze coherence": PROBED,
    "dise analyze correctness": SAMPLED,
    "dise analyze selectors": SAMPLED,
    "dise-lm-eval": {},
    "POST /v1/completions": {},
    "POST /v1/chat/completions": {},
    "POST /v1/responses": RESPONSE,
    "POST /v1/score": {},
    "POST /v1/rank": {},
    "POST /v1/decisions": {},
    "POST /v1/systemone": {},
}
"""Every entry point by its name."""
