"""A calibration of the toy model, and what it is made of."""

from __future__ import annotations

import json
from typing import Any

from dise_core import Calibration
from dise_core.scoring.calibration import fingerprint
from dise_core.testing import ToyPredictor

FIGURES = {
    "num_bins": 10,
    "ece": 0.02,
    "adaptive_ece": 0.02,
    "smooth_ece": 0.02,
    "brier": 0.1,
    "brier_skill": 0.4,
    "auroc": 0.8,
}

THRESHOLD = {
    "score": -2.5,
    "rule": "sgr",
    "max_risk": 0.1,
    "confidence": 0.95,
    "num_labels": 100,
    "coverage": 0.5,
    "risk": 0.05,
    "bound": 0.09,
}

HOLDING: dict[str, Any] = {
    "texts": "written",
    "prompted": True,
    "finished": True,
    "chat": None,
    "settings": None,
}

RECORD: dict[str, Any] = {
    "version": 2,
    "model": "toy",
    "fingerprint": fingerprint(ToyPredictor()),
    "judge": None,
    "scorer": "dise",
    "selector": "response",
    "scorer_settings": {},
    "holds_for": HOLDING,
    "map": {
        "method": "isotonic",
        "scores": [-4.0, -3.0, -2.0, -1.0],
        "probabilities": [0.1, 0.4, 0.4, 0.9],
    },
    "fields": {},
    "num_labels": 100,
    "num_right": 60,
    "num_questions": 50,
    "figures": FIGURES,
    "threshold": THRESHOLD,
    "source": "labels.jsonl",
}


def made(**changes: Any) -> Calibration:
    return Calibration.model_validate_json(json.dumps(RECORD | changes))
