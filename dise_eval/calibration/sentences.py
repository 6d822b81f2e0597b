"""What `dise calibrate` prints of what was fitted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dise_core.scoring.calibration import Figures, Fit, Holding, Threshold
from dise_eval.statistics.resampling import LEAST_OF_KIND, LEAST_QUESTIONS, is_enough


def of_groups(fits: Mapping[str, str], left_out: Mapping[str, str]) -> Iterator[str]:
    """Yield a line of each fit by its name, and why others have none."""
    yield from (f"{name}: {text}" for name, text in fits.items())
    yield from (f"{name}: left out, {why}" for name, why in left_out.items())


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


def of_holding(holding: Holding) -> str:
    """Return what a calibration holds for."""
    facts = holding.model_dump(exclude={"settings"}, exclude_none=True)
    for name, values in (holding.settings or {}).items():
        facts[name] = " or ".join(map(str, values))
    if holding.texts == "written" and holding.settings is None:
        facts["any settings"] = "as the labels do not say with which"
    return f"fitted with {', '.join(f'{name} {value!s:.80}' for name, value in facts.items())}"
