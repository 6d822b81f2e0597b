"""What `dise calibrate` prints of what was fitted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dise_core.records import Fields
from dise_core.scoring.calibration import Calibration, Figures, Fit, Threshold
from dise_eval.statistics.resampling import LEAST_OF_KIND, LEAST_QUESTIONS, is_enough


def of_groups(fits: Mapping[str, str], left_out: Mapping[str, str]) -> Iterator[str]:
    """Yield a line of each fit by its name, and why others have none."""
    yield from (f"{name}: {text}" for name, text in fits.items())
    yield from (f"{name}: left out, {why}" for name, why in left_out.items())


def of_answers(calibration: Calibration, about: Fields) -> Iterator[str]:
    """Yield what was fitted, and what is known about it besides."""
    yield f"{calibration.scorer} over {calibration.selector} of {calibration.model}"
    yield f"holds for {calibration.holds_for.model_dump_json(exclude_none=True)}"
    if calibration.compared is not None:
        yield f"{calibration.compared}"
    yield of_fit(calibration)
    if "threshold_reason" in about:
        yield f"it is there because {about['threshold_reason']}"
    if (tried := about["held_out"]) is not None:
        answered = "" if tried["risk"] is None else "; answers {coverage:.1%}, {risk:.1%} wrong"
        yield (
            f"held out, {tried['num_labels']} labels of {tried['num_questions']} questions: "
            f"{of_figures(tried['figures'] and Figures(**tried['figures']))}"
            f"{answered.format(**tried)}"
        )


def of_fit(fit: Fit) -> str:
    """Return what the map of answers does on questions left out of it, and its threshold."""
    share, method = fit.num_right / fit.num_labels, fit.map and fit.map.method
    is_told = is_enough(fit.num_questions, fit.num_right, fit.num_labels - fit.num_right)
    return (
        f"{fit.num_labels} labels of {fit.num_questions} questions, {share:.1%} right; {method}, "
        f"on questions left out of the fit: {of_figures(fit.figures if is_told else None)}"
        f"{of_threshold(fit.threshold)}"
    )


def of_figures(figures: Figures | None) -> str:
    """Return figures of probabilities; None are those of too few answers."""
    if figures is None:
        return (
            f"too few for an ECE or a ROC-AUC, which take {LEAST_QUESTIONS} questions with "
            f"{LEAST_OF_KIND} right and {LEAST_OF_KIND} wrong answers"
        )
    return (
        f"ECE {figures.ece:.4f} ({figures.num_bins} bins), adaptive {figures.adaptive_ece:.4f}, "
        f"smooth {figures.smooth_ece:.4f}; Brier {figures.brier:.4f}, skill "
        f"{figures.brier_skill:.3f}; ROC-AUC {figures.auroc:.3f}"
    )


def of_threshold(threshold: Threshold | None) -> str:
    """Return the promise of a threshold, to follow other text; empty without one."""
    if threshold is None:
        return ""
    return (
        f"; threshold {threshold.score:.6g} ({threshold.rule}): at most "
        f"{100 * threshold.max_risk:g}% wrong with {100 * threshold.confidence:g}% confidence; of "
        f"{threshold.num_labels} questions with one answer each {threshold.coverage:.1%} answered, "
        f"{threshold.risk:.1%} of it wrong"
    )
