"""A calibration: from scores to probabilities of being right, with a threshold to abstain."""

import hashlib
import math
import os.path
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from os import PathLike, fspath
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from dise_core.arrays import Floats
from dise_core.errors import InputError
from dise_core.files import opened_file
from dise_core.models.predictor import MaskPredictor
from dise_core.params.base import MAX_NAME, input_error
from dise_core.params.requests import Scoring
from dise_core.records import ABSENT, Record, first_difference

P = TypeVar("P", bound=Scoring)

MAX_BYTES = 2**22
"""The largest file, in bytes."""

Probability = Annotated[float, Field(ge=0, le=1)]
Text = Annotated[str, Field(max_length=MAX_NAME)]
Count = Annotated[int, Field(ge=0, le=2**53)]


class CalibrationPart(BaseModel):
    """A part of a calibration file: frozen, strict, without unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Isotonic(CalibrationPart):
    """A nondecreasing map, linear between knots and constant outside them."""

    method: Literal["isotonic"] = "isotonic"
    scores: Annotated[tuple[float, ...], FailFast()] = Field(min_length=1, max_length=2**16)
    probabilities: Annotated[tuple[Probability, ...], FailFast()] = Field(max_length=2**16)

    @model_validator(mode="after")
    def _rises(self) -> Self:
        num_scores, num_probabilities = len(self.scores), len(self.probabilities)
        if num_scores != num_probabilities:
            raise ValueError(
                f"{num_scores} scores do not pair up with {num_probabilities} probabilities"
            )
        if any(low >= high for low, high in pairwise(self.scores)):
            raise ValueError("scores must increase")
        if any(low > high for low, high in pairwise(self.probabilities)):
            raise ValueError("probabilities must not decrease")
        return self

    def of(self, scores: Floats) -> Floats:
        return np.interp(scores, self.scores, self.probabilities)


class Platt(CalibrationPart):
    """1 / (1 + exp(-(slope * score + intercept))), constant outside the fitted range."""

    method: Literal["platt"] = "platt"
    slope: float = Field(gt=0)
    intercept: float
    lowest_score: float
    highest_score: float

    @model_validator(mode="after")
    def _has_range(self) -> Self:
        if self.lowest_score > self.highest_score:
            raise ValueError("lowest_score must not be above highest_score")
        return self

    def of(self, scores: Floats) -> Floats:
        within = np.clip(scores, self.lowest_score, self.highest_score)
        return np.exp(-np.logaddexp(0, -(self.slope * within + self.intercept)))


class Threshold(CalibrationPart):
    """The score below which an answer is marked as abstained, and the promise that it
    keeps: with probability `confidence`, at most `max_risk` of the answers at or above it
    are wrong.

    num_labels: labelled answers that it was chosen on, one for each question. coverage,
    risk: the share of these at or above it, and the share of wrong ones among them.
    bound: the upper bound on the risk, or the p-value of LTT.
    """

    score: float
    rule: Literal["sgr", "ltt"]
    max_risk: Probability
    confidence: Probability
    num_labels: Count
    coverage: Probability
    risk: Probability
    bound: Probability


class Figures(CalibrationPart):
    """How well the map does on unseen questions, by cross-validation."""

    num_bins: Count
    ece: Probability
    adaptive_ece: Probability
    smooth_ece: Probability
    brier: Probability
    brier_skill: float
    auroc: Probability


class Fit(CalibrationPart):
    """A map from scores to probabilities of being right, and its labels."""

    map: Annotated[Isotonic | Platt, Field(discriminator="method")] | None
    num_labels: Count
    num_right: Count
    num_questions: Count
    figures: Figures
    threshold: Threshold | None

    def probability(self, score: float) -> float | None:
        """Return the probability that an answer of this score is right; None for -inf."""
        if self.map is None or not math.isfinite(score):
            return None
        return float(self.map.of(np.array(score)))

    @property
    def highest(self) -> float:
        """The probability that no score exceeds; 0 without a map."""
        return 0.0 if self.map is None else float(self.map.of(np.array(math.inf)))

    def abstains(self, score: float) -> bool | None:
        """Return whether the score is below the threshold; None without one."""
        return None if self.threshold is None else score < self.threshold.score


class CalibrationFile(CalibrationPart):
    """What a calibration holds for, in a file. model, fingerprint: what it was fitted on;
    it is refused for others. fingerprint is None where the labelled file did not say.
    source: what the labels came from.
    """

    model: Text
    fingerprint: Text | None
    source: Text

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Return the calibration in a file. Raises InputError if it holds none."""
        name = fspath(path)
        if not os.path.exists(name):  # which never raises
            raise InputError(
                f"there is no calibration file {name!r:.300}: --calibration (in Python "
                "calibration=) names a file that `dise calibrate` wrote",
                "calibration",
            )
        try:
            with opened_file(Path(name)) as file:
                text = file.read(MAX_BYTES + 1)
            if len(text) > MAX_BYTES:
                raise ValueError(f"it is longer than {MAX_BYTES} bytes")
            return cls.model_validate_json(text)
        except (OSError, ValueError) as error:
            why: object = getattr(error, "strerror", None) or error
            why = input_error(error) if isinstance(error, ValidationError) else why
            raise InputError(
                f"calibration file {name!r:.300} is none that `dise calibrate` wrote: {why}",
                "calibration",
            ) from None

    @classmethod
    def of(cls, given: object) -> Self | None:
        """Return a calibration, or load it from a file. Raises InputError otherwise."""
        if given is None or isinstance(given, cls):
            return given
        if isinstance(given, str | PathLike):
            return cls.load(given)
        name, its = cls.__name__, type(given).__name__
        raise InputError(f"a calibration is a file or a {name}, not {its}", "calibration")

    def to_dict(self) -> dict[str, object]:
        return self.model_dump(mode="json")

    @cached_property
    def digest(self) -> str:
        """A name for its content: 16 hexadecimal digits."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]

    def check_model(self, predictor: MaskPredictor) -> None:
        """Raise InputError unless it was fitted on this model's scores."""
        facts = {"model": predictor.info.name, "fingerprint": fingerprint(predictor)}
        its = {"model": self.model, "fingerprint": self.fingerprint or facts["fingerprint"]}
        refuse_other(
            ((name, [its[name]], value) for name, value in facts.items()),
            "calibration",
            "If both are one checkpoint, say so in these fields of the file.",
        )


class Holding(CalibrationPart):
    """Which answers a calibration holds for: those made as the labelled ones were.

    texts: whether the model wrote them or they were given to it. prompted: whether a
    prompt stands before them. finished: whether they end, or are read as texts that go
    on. chat: what was asked of the chat template; None for the default, which applies it
    where there is one. settings: of SamplingParams, the values of the options that were
    not at their defaults, of each a list; None where the labels did not say, which then
    holds for any.
    """

    texts: Literal["written", "given"]
    prompted: bool = True
    finished: bool = True
    chat: bool | None = None
    settings: dict[Text, Annotated[tuple[JsonValue, ...], Field(min_length=1)]] | None = None

    @model_validator(mode="after")
    def _has_numbers(self) -> Self:
        for name in RANGES & (self.settings or {}).keys():
            if not all(isinstance(value, int | float) for value in (self.settings or {})[name]):
                raise ValueError(f"settings of {name} must be numbers")
        return self


RANGES = frozenset({"max_tokens", "block_length", "tokens_per_step", "temperature"})
"""Settings for which what was fitted at two values holds between them, too."""

Fact = tuple[str, Sequence[object], object]
"""The name of a fact, the values that labelled answers had, and a request's own."""


def difference(facts: Iterable[Fact]) -> str | None:
    """Return in which fact a request is not as the labels were, the first one; None if it
    is as they were. The name of an inner value leads to it, as in "scorer_settings.k".
    """
    for name, fitted, value in facts:
        if name in RANGES and isinstance(value, int | float):
            holds = min(fitted) <= value <= max(fitted)  # type: ignore[type-var, operator]
        else:
            holds = value in fitted
        if not holds:
            return _sentence(name, fitted, value)
    return None


def _sentence(name: str, fitted: Sequence[object], value: object) -> str:
    if isinstance(value, Mapping):
        name, *pair = first_difference(name, fitted[0], value)
        fitted, value = pair[:1], pair[1]
    values = " or ".join(map(_shown, fitted))
    return f"it was fitted with {name} {values}, and this has {_shown(value)}"


def refuse_other(facts: Iterable[Fact], parameter: str, advice: str) -> None:
    """Raise InputError, about a parameter, for a request with another value of a fact."""
    if (why := difference(facts)) is not None:
        raise InputError(f"The calibration does not hold here: {why}. {advice}", parameter)


def _shown(value: object) -> str:
    return "unset" if value is None or value is ABSENT else f"{value!s:.300}"


class Comparison(CalibrationPart):
    """The scores that labels were asked to choose among, and what was chosen.

    aurocs: the ROC-AUC of each on these labels. simplest: the one that was kept unless
    `low` is above 0. gain: the ROC-AUC of choosing minus that of the simplest, on
    questions left out of the choice; low, high: its 95 % interval over questions.
    """

    aurocs: dict[str, Probability]
    simplest: str
    chosen: str
    gain: float
    low: float
    high: float
    num_labels: Count
    num_questions: Count

    def __str__(self) -> str:
        verdict = "chosen" if self.low > 0 else "kept, as none differs from it beyond chance"
        aurocs = (f"{name} {auroc:.3f}" for name, auroc in self.aurocs.items())
        return (
            f"{self.chosen} is {verdict}: on questions left out of the choice, choosing "
            f"gains {self.gain:+.3f} [{self.low:+.3f}, {self.high:+.3f}] beside "
            f"{self.simplest}; ROC-AUC on {self.num_labels} labels of "
            f"{self.num_questions} questions: {', '.join(aurocs)}"
        )


class Calibration(CalibrationFile, Fit):
    """A map from scores of answers to probabilities of being right, with what it holds
    for.

    judge, scorer, selector and their settings: of the scores that it was fitted on. judge
    is None where the labelled file did not say. holds_for: how the answers were made;
    others have no probability. fields: of the values of JSON answers, by the pattern of
    their pointer or by their type; where it was fitted on these, map and threshold are
    None, and figures those of one map for all. compared: how the labels chose scorer and
    selector, if they did; absent from the file if not.
    """

    version: Literal[2] = 2
    judge: Text | None
    scorer: Text
    selector: Text
    scorer_settings: dict[str, JsonValue]
    selector_settings: dict[str, JsonValue] = Field(default_factory=dict)
    holds_for: Holding
    fields: dict[Text, Fit] = Field(default_factory=dict)
    compared: Comparison | None = None

    @model_serializer(mode="wrap")
    def _plainly(self, write: SerializerFunctionWrapHandler) -> Record:
        """Leave out the selector's settings and the comparison where there are none, as
        older files do.
        """
        record: Record = write(self)
        for name in ("selector_settings", "compared"):
            if not getattr(self, name):
                record.pop(name, None)
        return record

    def of_field(self, pointer: str, json_type: str) -> Fit | None:
        """Return the fit for such a field: that of its pattern, else of its type."""
        return self.fields.get(pattern_of(pointer)) or self.fields.get(json_type)

    def applied(self, params: P) -> P:
        """Return the params, with its scorer and selector where the user named none."""
        fields = params.model_fields_set
        if "scorer" in fields and params.scorer != self.scorer:
            return params
        names = {"scorer", "selector", "scorer_settings", "selector_settings"} - fields
        if "selector" in fields:  # whose settings are not those of another
            names -= {"selector_settings"}
        return params.model_copy(update={name: getattr(self, name) for name in names})


def pattern_of(pointer: str) -> str:
    """Return a JSON pointer with `*` for indices. Raises InputError for other text."""
    if pointer[:1] not in ("", "/"):
        raise InputError(f"{pointer!r:.80} is no JSON pointer as /lines/0/price", "path")
    return re.sub(r"(?<=/)(0|[1-9][0-9]*)(?=/|\Z)", "*", pointer)


def fingerprint(predictor: MaskPredictor) -> str:
    """Return a digest of the vocabulary's size and of a sample of its tokens."""
    sample = range(0, predictor.info.vocab_size, max(1, predictor.info.vocab_size // 512))
    names = "\n".join(predictor.tokenizer.token_text(token_id) for token_id in sample)
    return hashlib.sha256(f"{predictor.info.vocab_size}\n{names}".encode()).hexdigest()[:16]
