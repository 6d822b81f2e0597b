"""Files: what is wrong with one is told with its name."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from dise_app.server.limits import api_keys
from dise_core import LLM, Calibration, InputError
from dise_core.scoring.calibration import MAX_BYTES
from dise_core.testing import ToyPredictor
from tests.calibrations import HOLDING, RECORD
from tests.refusals.table import Refusal, Row, Table

PLATT = {"method": "platt", "slope": 1, "intercept": 0, "lowest_score": 0, "highest_score": 1}
RECORDED = json.dumps(RECORD)


def wrong_map(**changes: object) -> dict[str, object]:
    return {"map": RECORD["map"] | changes}


FIELDS: list[Row] = [
    ({"version": 3}, "calibration", "version=3"),
    ({"kind": "x"}, "calibration", "there is no setting 'kind'"),
    ({"model": "m" * 1001}, "calibration", "model="),
    ({"map": {"method": "spline"}}, "calibration", "spline"),
    (wrong_map(scores=[]), "calibration", "map.isotonic.scores=[]"),
    ({"holds_for": HOLDING | {"settings": {"temperature": ["x"]}}}, "calibration",
     "must be numbers"),
    ({"holds_for": HOLDING | {"settings": {"constraint": []}}}, "calibration", "constraint=[]"),
    (wrong_map(scores=[-4, -3, -2]), "calibration", "3 scores do not pair up with 4 probabilities"),
    (wrong_map(scores=[-4, -3, -3, -1]), "calibration", "scores must increase"),
    (wrong_map(probabilities=[0.1, 0.4, 0.3, 0.9]), "calibration",
     "probabilities must not decrease"),
    ({"map": PLATT | {"slope": -1}}, "calibration", "map.platt.slope=-1"),
    ({"map": PLATT | {"lowest_score": 2}}, "calibration",
     "lowest_score must not be above highest_score"),
    ("", "calibration", "calibration file"),
    ("[]", "calibration", "calibration file"),
    ("[" * 100_000, "calibration", "calibration file"),
    (RECORDED.replace("-4.0", "NaN"), "calibration", "calibration file"),
    (RECORDED + " " * MAX_BYTES, "calibration", "calibration file"),
]  # fmt: skip

PATHS: list[Row] = [
    (lambda folder: folder, "calibration", "calibration file … wrote: Is a directory"),
    (lambda folder: folder / "none.json", "calibration", "calibration file"),
    (lambda folder: folder / "pipe", "calibration", "calibration file … a pipe, a device"),
    (lambda _: "a\0b", "calibration", "calibration file"),
    (lambda _: 3, "calibration", "not int"),
]  # fmt: skip

KEYS: list[Row] = [
    (b"\n \n", "api_key_file=keys", "holds no key"),
    (None, "api_key_file=keys", "cannot read … : No such file"),
]  # fmt: skip


def load(given: Any, request: pytest.FixtureRequest) -> Refusal:
    path: Path = request.getfixturevalue("tmp_path") / "calibration.json"
    path.write_text(given if isinstance(given, str) else json.dumps(RECORD | given))
    with pytest.raises(InputError, match="calibration file") as caught:
        Calibration.load(path)
    return Refusal.of(caught.value)


def place(given: Any, request: pytest.FixtureRequest) -> Refusal:
    folder: Path = request.getfixturevalue("tmp_path")
    os.mkfifo(folder / "pipe")
    with pytest.raises(InputError) as caught:
        LLM(ToyPredictor(), calibration=given(folder))
    return Refusal.of(caught.value)


def keys(given: bytes | None, request: pytest.FixtureRequest) -> Refusal:
    path: Path = request.getfixturevalue("tmp_path") / "keys"
    if given is not None:
        path.write_bytes(given)
    with pytest.raises(InputError) as caught:
        api_keys(path)
    return Refusal.of(caught.value)


TABLES = [
    Table("calibration", load, FIELDS),
    Table("path", place, PATHS),
    Table("keys", keys, KEYS),
]
