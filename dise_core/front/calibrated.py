"""Whether a calibration holds for a request: its answers are made and scored as it was fitted."""

from collections.abc import Mapping

from dise_core.errors import InputError
from dise_core.params.requests import SamplingParams, Scoring
from dise_core.plugins.catalog import Catalog
from dise_core.scoring.calibration import Calibration
from dise_core.scoring.sequence_scorer import SequenceScorer


def check_calibration(
    calibration: Calibration, catalog: Catalog, params: Scoring, bound: SequenceScorer, judge: str
) -> None:
    """Raise InputError, with what each is, unless a request's answers and scores are made as those
    that the calibration was fitted on. judge: the name of the loaded one, "" for none.
    """
    pairs: list[tuple[str, object, object]] = [("scorer", calibration.scorer, params.scorer)]
    if params.scorer == calibration.scorer:
        pairs += [
            (f"{calibration.scorer} with {name}", value, getattr(bound.scorer, name))
            for name, value in catalog.scorer(calibration.scorer, calibration.scorer_settings)
        ]
    if calibration.map and catalog.selector(calibration.selector) != bound.selector:
        pairs.append(("selector", calibration.selector, params.selector or ""))
    if bound.scorer.asks == "judge":
        pairs.append(("judge", calibration.judge or "none", judge))
    for what, fitted, requested in pairs:
        if fitted != requested:
            problem = f"the calibration is for {what} {fitted!s:.80}, not {requested!s:.80}"
            advice = "leave that out, or fit a calibration for it"
            raise InputError(f"{problem}: {advice}", "calibration")
    if isinstance(params, SamplingParams):
        _check_answers(calibration, catalog, params)


def _check_answers(calibration: Calibration, catalog: Catalog, params: SamplingParams) -> None:
    fitted = _revised(calibration.reviser, calibration.reviser_settings, catalog)
    requested = _revised(params.reviser, params.reviser_settings, catalog)
    if fitted != requested:
        problem = f"the calibration is for answers {fitted}, not for answers {requested}"
        advice = "revise likewise, or fit a calibration for these"
        raise InputError(f"{problem}: {advice}", "calibration")
    highest = calibration.map.highest if calibration.map else 0.0
    if params.stop_at is not None and not 0 < params.stop_at <= highest:
        problem = f"stop_at={params.stop_at}: with this calibration it is a probability above 0"
        most = f"as no score has a higher one, at most {highest:.4f}"
        raise InputError(f"{problem} and, {most}", "stop_at")


def _revised(name: str | None, settings: Mapping[str, object], catalog: Catalog) -> str:
    if name is None:
        return "without a reviser"
    values = ", ".join(f"{key}={value}" for key, value in catalog.reviser(name, settings))
    return f"revised by {name} with {values}"
