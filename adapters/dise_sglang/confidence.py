"""The score of an answer that SGLang wrote, and its probability by a calibration."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dise_core import (
    EngineConfig,
    InputError,
    Read,
    Reading,
    SamplingParams,
    drive,
    installed_catalog,
)
from dise_core.errors import DiseError
from dise_core.front.calibrated import Calibrations
from dise_core.front.planner import Planner
from dise_core.history import Writing
from dise_core.records import Record, json_number
from dise_core.scoring.calibration import Calibration
from dise_core.scoring.memory import asks_own_tokens

logger = logging.getLogger(__name__)

CALIBRATION = "DISE_SGLANG_CALIBRATION"
"""The environment variable that names a calibration file."""

POLICIES = {
    "LowConfidence": ("low-confidence-dynamic", {"threshold": ("threshold", 0.95)}),
    "JointThreshold": (
        "llada2-editing",
        {"threshold": ("threshold", 0.5), "editing_threshold": ("edit_threshold", 0),
         "max_post_steps": ("max_post_edit_steps", 16)},
    ),
    "Gemma4Renoise": (
        "entropy-bound-renoise",
        {name: (name, default) for name, default in (
            ("max_denoising_steps", 48), ("entropy_bound", 0.1), ("t_max", 0.8), ("t_min", 0.4),
            ("stability_threshold", 1), ("confidence_threshold", 0.005),
        )},
    ),
}  # fmt: skip
"""Our policies that write as SGLang's algorithms; of each setting, its name and default there."""

SECTIONS = ("sampler_config", "temperature_schedule", "stopping_config")
"""Of an algorithm's settings, those that hold others."""


def confidences_of(model: str, algorithm: str, settings: Mapping[str, Any]) -> Any:
    """Return what scores answers of a model that are written so; None for one that we
    cannot open. Raises DiseError for a calibration file that is not of this model.
    """
    path = os.environ.get(CALIBRATION)
    try:
        catalog = installed_catalog()
        predictor = catalog.load_model(model, EngineConfig())
        named = Calibration.of(path)
        if named is not None:
            named.check_model(predictor)
    except DiseError as error:
        if path is not None:
            raise
        logger.warning("dise_sglang tells tokens alone, no scores of answers: %s", error)
        return None
    own = tuple(map(Calibration.load, predictor.calibration_files))
    planner = Planner({"target": predictor}, catalog, Calibrations(named, own))
    return Confidences(planner, algorithm, _written_by(algorithm, settings))


def _written_by(algorithm: str, settings: Mapping[str, Any]) -> SamplingParams | None:
    """Return the params by which we would write the same; None if we do not."""
    if algorithm not in POLICIES or settings.get("penalty_lambda", 0):
        return None
    policy, names = POLICIES[algorithm]
    for section in SECTIONS:
        settings = {**settings, **(settings.get(section) or {})}
    given = {name: settings.get(*theirs) for name, theirs in names.items()}
    return SamplingParams(unmasking=policy, unmasking_settings=given)


@dataclass(frozen=True, slots=True)
class Confidences:
    """Scores answers. params: by which we would have written them, if we can."""

    planner: Planner
    algorithm: str
    params: SamplingParams | None

    def tell(
        self, prompt: list[int], ids: list[int], columns: Sequence[Any], max_tokens: int
    ) -> Record:
        """Return what is told of an answer. columns: its steps, from 1, and
        log-probabilities when written and when read, each [R], None where unknown.
        """
        try:
            return self._told(prompt, ids, columns, max_tokens)
        except DiseError as error:
            return {"score": None, "uncalibrated": str(error)}

    def _told(
        self, prompt: list[int], ids: list[int], columns: Sequence[Any], max_tokens: int
    ) -> Record:
        planner = self.planner
        context = planner.prompts.read(prompt, None)
        room = planner.predictor.info.max_length - len(prompt)
        params = self.params or SamplingParams()
        asked = params.model_copy(update={"max_tokens": min(max_tokens, room)})
        request = planner.writing(context, asked)
        text = planner.prompts.finished(context, ids, request.params.block_length)
        steps, written, logprobs = (np.array(column, np.float64) for column in columns)
        writing = Writing.of(text.ids)
        writing.steps[len(prompt) :] = np.nan_to_num(steps) - 1
        writing.logprobs[len(prompt) :] = written
        known = np.append(np.full(len(prompt), np.nan), logprobs).astype(np.float32)
        score = drive(
            request.scorer.score(replace(text, writing=writing)),
            lambda reads: [_answer(read, known) for read in reads],
        )
        means = writing.logprobs[score.positions].astype(np.float64)
        calibration, reason = request.calibration, request.uncalibrated
        if self.params is None:
            calibration = None
            reason = f"SGLang's {self.algorithm} writes as no policy does that we calibrate."
        by = {"scorer": request.params.scorer, "selector": request.params.selector}
        return {
            "score": {**by, **score.to_dict()},
            "written": json_number(float(means.mean())) if len(means) else None,
            "probability": calibration and calibration.probability(score.value),
            "abstained": calibration and calibration.abstains(score.value),
            **({} if reason is None else {"uncalibrated": reason}),
        }


def _answer(read: Read, known: np.ndarray) -> Reading:
    """Return what is known of a Read. Raises InputError for anything but own tokens."""
    values = known[read.positions]
    if not asks_own_tokens(read) or len(read.token_ids) != len(known) or np.isnan(values).any():
        raise InputError(
            "SGLang tells of the tokens that it wrote alone: calibrate the scorer 'dise' or "
            "'written', over a selector of the response.",
            "scorer",
        )
    return Reading(read.token_ids[read.positions], values)
