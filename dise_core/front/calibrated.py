"""Whether a calibration holds for a request: its answers are made and scored as it was fitted."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pydantic import JsonValue

from dise_core.errors import InputError
from dise_core.front.resolved import Resolved, ResolvedWriting
from dise_core.models.info import ModelInfo
from dise_core.params.requests import SamplingParams, ScoringParams
from dise_core.plugins.catalog import Catalog
from dise_core.plugins.kinds import CONSTRAINT, LENGTH, REVISER, UNMASKING, Kind
from dise_core.scoring.calibration import Calibration, Fact, difference
from dise_core.writing.policy import UnmaskingPolicy

R = TypeVar("R", bound=Resolved)

NOT_OF_ANSWERS = {"seed", "steps", "n", "best_of", *ScoringParams.model_fields} - {"block_length"}
"""Fields of SamplingParams that leave the share of right answers as it is, or stand for others."""

OF_ALL_POLICIES = {name: field.default for name, field in UnmaskingPolicy.model_fields.items()}

DEFAULTS = SamplingParams()


@dataclass(frozen=True, slots=True)
class Calibrations:
    """named: the calibration that the user named. own: those that come with the model,
    for requests of which they hold where the user named none.
    """

    named: Calibration | None = None
    own: tuple[Calibration, ...] = ()

    def applied(self, request: R) -> R:
        """Return the request with the calibration that holds for its answers, if any, or
        with the reason why the one that the user named does not.
        """
        calibration, reason = self._holding(request)
        return replace(request, calibration=calibration, uncalibrated=reason)

    def stopping(self, request: ResolvedWriting) -> Calibration | None:
        """Return what makes probabilities of the scores that `stop_at` is compared with;
        None where it is compared with the scores themselves, or not asked for. Raises
        InputError for a probability that no calibration tells, and for one that no score
        reaches.
        """
        if (stop_at := request.asked.stop_at) is None:
            return None
        update = {"n": 1, "best_of": None, "stop_at": None}
        single = replace(request, asked=request.params.model_copy(update=update))
        calibration, reason = self._holding(single)
        if calibration is None:
            self._refuse_probability(stop_at, reason, request)
            return None
        if not 0 < stop_at <= calibration.highest:
            raise InputError(
                f"stop_at={stop_at}: with this calibration it is a probability above 0 "
                f"and, as no score has a higher one, at most {calibration.highest:.4f}",
                "stop_at",
            )
        return calibration

    def _holding(self, request: Resolved) -> tuple[Calibration | None, str | None]:
        if self.named is not None:
            reason = why_not(self.named, request)
            return (self.named if reason is None else None), reason
        fitting = (calibration for calibration in self.own if why_not(calibration, request) is None)
        return next(fitting, None), None

    def _refuse_probability(self, stop_at: float, reason: str | None, request: Resolved) -> None:
        if reason is not None:
            raise InputError(
                f"stop_at={stop_at} is a probability by the calibration, which does not hold "
                f"for these answers: {reason}",
                "stop_at",
            )
        scorers = [calibration.scorer for calibration in self.own]
        if stop_at > 0 and request.params.scorer in scorers:
            raise InputError(
                f"stop_at={stop_at} is no score of {request.params.scorer!r}, and the model's "
                "own calibration holds for single answers at its own settings alone; name a "
                "calibration that was fitted at yours, or give a score",
                "stop_at",
            )


def why_not(calibration: Calibration, request: Resolved) -> str | None:
    """Return in what its answers are not as the labelled ones were; None if they are."""
    facts = _of_scores, _of_texts, _of_settings
    return difference(fact for part in facts for fact in part(calibration, request))


def _of_scores(fitted: Calibration, request: Resolved) -> Iterator[Fact]:
    bound, params, catalog = request.scorer, request.params, request.catalog
    yield "scorer", [fitted.scorer], params.scorer
    its = catalog.scorer(fitted.scorer, fitted.scorer_settings)
    yield "scorer_settings", [dict(its)], dict(bound.scorer)
    if fitted.map and catalog.selector(fitted.selector, fitted.selector_settings) != bound.selector:
        theirs, ours = (
            f"{name} {settings or ''}".rstrip()
            for name, settings in (
                (fitted.selector, fitted.selector_settings),
                (params.selector, params.selector_settings),
            )
        )
        yield "selector", [theirs], ours
    if bound.scorer.asks == "judge":
        yield "judge", [fitted.judge], request.predictors["judge"].info.name


def _of_texts(fitted: Calibration, request: Resolved) -> Iterator[Fact]:
    holding, prompt = fitted.holds_for, request.prompt
    came_about = "given" if request.asked is None else "written"
    yield "texts", [holding.texts], f"{came_about} into a gap" if prompt.is_gap else came_about
    yield "finished", [holding.finished], request.is_finished
    has_prompt = len(prompt.ids) > 0 and prompt.text != ""
    yield "prompted", [holding.prompted], has_prompt
    if has_prompt:
        default = request.predictor.tokenizer.has_chat_template
        yield "chat", [default if holding.chat is None else holding.chat], prompt.is_turn


def _of_settings(fitted: Calibration, request: Resolved) -> Iterator[Fact]:
    if request.asked is None:
        return
    values = fitted.holds_for.settings
    if values is None:  # of free answers, with any other settings
        if fitted.map is not None:
            yield "constraint", [None], request.asked.constraint
        return
    info, catalog = request.predictor.info, request.catalog
    length = "fixed" if info.block_length is None else "until-end"
    settings = settings_of_answers(request.asked, catalog, info)
    defaults = settings_of_answers(DEFAULTS, catalog)
    for name in {**settings, **values}:
        value, choices = settings.get(name), values.get(name, (defaults.get(name),))
        if name == "length":  # unset is the default's name
            yield name, [choice or length for choice in choices], value or length
        elif name in settings or name not in defaults:  # own blocks are no setting
            yield name, choices, value


def settings_of_answers(
    params: SamplingParams, catalog: Catalog, info: ModelInfo | None = None
) -> dict[str, JsonValue]:
    """Return what decides how often answers written with these params are right, as JSON.
    Settings of a strategy are whole, tokens_per_step is what the policy commits, and n
    counts where it selects. info: of the model, whose own blocks are no setting.
    """
    is_selected = params.num_samples > params.n
    settings: dict[str, JsonValue] = {
        "constraint": params.constraint,
        "best_of": f"{params.n} of {params.num_samples}" if is_selected else None,
        **params.model_dump(mode="json", exclude=NOT_OF_ANSWERS),
    }
    policy = catalog.required(UNMASKING, params)
    # Files of before all policies had these fields name none of them.
    settings["unmasking_settings"] = {
        name: value
        for name, value in policy.model_dump(mode="json").items()
        if name not in OF_ALL_POLICIES or value != OF_ALL_POLICIES[name]
    }
    settings["tokens_per_step"] = policy.rate_of(params)
    kinds: tuple[Kind[Any], ...] = (LENGTH, REVISER, CONSTRAINT)
    for kind in kinds:
        strategy = catalog.chosen(kind, params)
        fields = {} if strategy is None else strategy.model_dump(mode="json")
        settings[f"{kind.option}_settings"] = fields
    if params.cache not in ("prefix", "dual"):
        settings["cache"] = "exact"  # as any other that changes no answer
    if info is not None and info.block_length is not None:
        del settings["block_length"]
    return settings


def fitted_settings(
    records: Iterable[Mapping[str, Any]], catalog: Catalog
) -> dict[str, tuple[JsonValue, ...]]:
    """Return the values that options had which are not at their defaults in all records,
    each the fields of a SamplingParams, as `Holding.settings` has them. A record names
    all fields, so that a tokens_per_step at its default is taken for one that nobody set.
    Raises InputError for other records.
    """
    unset = ("tokens_per_step", SamplingParams.model_fields["tokens_per_step"].default)
    defaults = settings_of_answers(DEFAULTS, catalog)
    values: dict[str, list[JsonValue]] = {name: [] for name in defaults}
    for record in records:
        params = SamplingParams(**dict(pair for pair in record.items() if pair != unset))
        for name, value in settings_of_answers(params, catalog).items():
            if value not in values[name]:
                values[name].append(value)
    return {name: tuple(choices) for name, choices in values.items() if choices != [defaults[name]]}
