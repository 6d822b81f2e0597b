"""Whether a calibration holds for a request: its answers are made and scored as it was fitted."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pydantic import JsonValue

from dise_core.errors import InputError
from dise_core.models.info import ModelInfo
from dise_core.models.predictor import MaskPredictor
from dise_core.models.prompts import GivenPrompt
from dise_core.params.requests import SamplingParams, ScoringParams
from dise_core.plugins.catalog import Catalog
from dise_core.plugins.kinds import CONSTRAINT, LENGTH, REVISER, UNMASKING, Kind
from dise_core.records import ABSENT, first_difference
from dise_core.scoring.calibration import Calibration
from dise_core.scoring.sequence_scorer import SequenceScorer
from dise_core.writing.policy import UnmaskingPolicy

NOT_OF_ANSWERS = {"seed", "steps", "n", "best_of", *ScoringParams.model_fields} - {"block_length"}
"""Fields of SamplingParams that leave the share of right answers as it is, or stand for others."""


@dataclass(frozen=True)
class Answers:
    """The answers that a request asks for. scoring: what applies to the model; params:
    what is written, before that; None for given texts. defaults: returns the settings of
    answers for which nothing is asked, which a catalog without our strategies cannot make.
    is_finished: whether given texts end.
    """

    predictors: Mapping[str, MaskPredictor]
    catalog: Catalog
    prompt: GivenPrompt
    scorer: SequenceScorer
    scoring: ScoringParams
    params: SamplingParams | None = None
    defaults: Callable[[], Mapping[str, JsonValue]] = dict
    is_finished: bool = True

    @cached_property
    def settings(self) -> dict[str, JsonValue]:
        """The settings of what is written; see `settings_of_answers`."""
        info = self.predictors["target"].info
        return settings_of_answers(self.params or SamplingParams(), self.catalog, info)


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The calibration that holds for a request's answers, if any. reason: why the one
    that the user named does not, a sentence; None where it does, and without one.
    """

    calibration: Calibration | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Calibrations:
    """named: the calibration that the user named. own: those that come with the model,
    for requests of which they hold where the user named none.
    """

    named: Calibration | None = None
    own: tuple[Calibration, ...] = ()

    def of(self, answers: Answers) -> Calibrated:
        """Return the calibration that holds for these answers."""
        if self.named is not None:
            reason = why_not(self.named, answers)
            return Calibrated(self.named) if reason is None else Calibrated(None, reason)
        fitting = (own for own in self.own if why_not(own, answers) is None)
        return Calibrated(next(fitting, None))

    def stopping(self, answers: Answers) -> Calibration | None:
        """Return what makes probabilities of the scores that `stop_at` is compared with;
        None where it is compared with the scores themselves, or not asked for. Raises
        InputError for a probability that no calibration tells, and for one that no score
        reaches.
        """
        stop_at = None if answers.params is None else answers.params.stop_at
        if stop_at is None:
            return None
        params = answers.scoring
        assert isinstance(params, SamplingParams), "written answers have them"
        single = params.model_copy(update={"n": 1, "best_of": None, "stop_at": None})
        calibrated = self.of(replace(answers, params=single))
        if calibrated.calibration is None:
            self._refuse_probability(stop_at, calibrated.reason, answers)
            return None
        highest = calibrated.calibration.highest
        if not 0 < stop_at <= highest:
            raise InputError(
                f"stop_at={stop_at}: with this calibration it is a probability above 0 "
                f"and, as no score has a higher one, at most {highest:.4f}",
                "stop_at",
            )
        return calibrated.calibration

    def _refuse_probability(self, stop_at: float, reason: str | None, answers: Answers) -> None:
        if reason is not None:
            raise InputError(
                f"stop_at={stop_at} is a probability by the calibration, which does not hold "
                f"for these answers: {reason}",
                "stop_at",
            )
        scorers = [calibration.scorer for calibration in self.own]
        if stop_at > 0 and answers.scoring.scorer in scorers:
            raise InputError(
                f"stop_at={stop_at} is no score of {answers.scoring.scorer!r}, and the model's "
                "own calibration holds for single answers at its own settings alone; name a "
                "calibration that was fitted at yours, or give a score",
                "stop_at",
            )


def why_not(calibration: Calibration, answers: Answers) -> str | None:
    """Return a sentence on why the calibration does not hold; None if it does."""
    reasons = (_of_scores, _of_texts, _of_settings)
    return next((why for reason in reasons for why in reason(calibration, answers)), None)


def _of_scores(calibration: Calibration, answers: Answers) -> Iterator[str]:
    bound, catalog, name = answers.scorer, answers.catalog, answers.scoring.scorer
    if name != calibration.scorer:
        yield f"it was fitted on scores of {calibration.scorer!r}, not of {name!r}"
        return
    for name, value in catalog.scorer(calibration.scorer, calibration.scorer_settings):
        if value != (requested := getattr(bound.scorer, name)):
            yield (
                f"it was fitted on scores of {calibration.scorer!r} with {name} {value!s:.80}, "
                f"not {requested!s:.80}"
            )
    selection = calibration.selector, calibration.selector_settings
    if calibration.map and catalog.selector(*selection) != bound.selector:
        theirs, ours = (
            f"{scoring.selector!r} {scoring.selector_settings or ''!s:.80}".rstrip()
            for scoring in (calibration, answers.scoring)
        )
        yield f"it was fitted on scores over {theirs}, not over {ours}"
    judge = answers.predictors["judge"].info.name if "judge" in answers.predictors else ""
    if bound.scorer.asks == "judge" and calibration.judge != judge:
        yield f"it was fitted on scores of the judge {calibration.judge!r}, not {judge!r}"


def _of_texts(calibration: Calibration, answers: Answers) -> Iterator[str]:
    fitted, prompt = calibration.holds_for, answers.prompt
    if prompt.is_gap:
        yield "it was fitted on whole answers, and this one fills a gap"
    if fitted.texts == "written" and answers.params is None:
        yield "it was fitted on answers that the model wrote, and this text was given to it"
    if fitted.texts == "given" and answers.params is not None:
        yield "it was fitted on texts that were given to the model, and it wrote this one"
    if fitted.finished != answers.is_finished:
        ends = "finished texts, and this one is read as one that goes on"
        yield f"it was fitted on {ends if fitted.finished else 'texts that go on, and this ends'}"
    has_prompt = len(prompt.ids) > 0 and prompt.text != ""
    if fitted.prompted != has_prompt:
        without = "answers to prompts, and this text has none"
        yield f"it was fitted on {without if fitted.prompted else 'texts without a prompt'}"
    has_template = answers.predictors["target"].tokenizer.has_chat_template
    if has_prompt and prompt.is_turn != (has_template if fitted.chat is None else fitted.chat):
        yield (
            "it was fitted on prompts of plain text, and this one is in the chat template"
            if prompt.is_turn
            else "it was fitted on prompts in the chat template, and this one is plain text"
        )


def _of_settings(calibration: Calibration, answers: Answers) -> Iterator[str]:
    holding, info = calibration.holds_for, answers.predictors["target"].info
    if answers.params is None:
        return
    if holding.settings is None:
        if answers.params.constraint is not None and calibration.map is not None:
            yield "it was fitted on free answers, and this one keeps to a constraint"
        return
    defaults = answers.defaults()
    lengths = (None, "fixed" if info.block_length is None else "until-end")
    for name, value in answers.settings.items():
        default = defaults[name]
        aliases = lengths if name == "length" and value in lengths else (value,)
        if not any(holding.allows(name, alias, default) for alias in aliases):
            yield _other_setting(name, value, holding.settings.get(name, (default,)))
    for name in sorted(holding.settings.keys() - defaults.keys()):
        yield _other_setting(name, None, holding.settings[name])  # it was taken out since


def _other_setting(name: str, value: object, fitted: Sequence[object]) -> str:
    """Return how an answer's setting differs from those that were fitted on."""
    if name == "constraint" and value is None:
        return "it was fitted on answers under a constraint, and this one is free"
    if name == "constraint" and fitted[0] is None:
        return "it was fitted on free answers, and this one keeps to a constraint"
    if name == "best_of":
        singles = "single answers" if fitted[0] is None else f"the best {fitted[0]} answers"
        group = "is one of those written" if value is None else f"is of the best {value}"
        return f"it was fitted on {singles}, and this one {group}"
    if isinstance(value, dict):
        name, *pair = first_difference(name, fitted[0], value)
        fitted, value = pair[:1], pair[1]
    values = " or ".join(_setting_text(setting) for setting in fitted)
    return f"it was fitted on answers with {name} {values}, not {_setting_text(value)}"


def _setting_text(value: object) -> str:
    return "unset" if value is None or value is ABSENT else f"{value!s:.80}"


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
    kinds: tuple[Kind[Any], ...] = (UNMASKING, LENGTH, REVISER, CONSTRAINT)
    for kind in kinds:
        strategy = catalog.chosen(kind, params)
        fields = {} if strategy is None else strategy.model_dump(mode="json")
        if isinstance(strategy, UnmaskingPolicy):  # files of before it had them name none of these
            unset = {name: field.default for name, field in UnmaskingPolicy.model_fields.items()}
            fields = dict(pair for pair in fields.items() if pair not in unset.items())
        settings[f"{kind.option}_settings"] = fields
    policy = catalog.required(UNMASKING, params)
    settings["tokens_per_step"] = policy.rate_of(params)
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
    defaults = settings_of_answers(SamplingParams(), catalog)
    values: dict[str, list[JsonValue]] = {name: [] for name in defaults}
    for record in records:
        params = SamplingParams(**dict(pair for pair in record.items() if pair != unset))
        for name, value in settings_of_answers(params, catalog).items():
            if value not in values[name]:
                values[name].append(value)
    return {name: tuple(choices) for name, choices in values.items() if choices != [defaults[name]]}
