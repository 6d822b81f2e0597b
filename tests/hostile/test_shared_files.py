"""Adapters, calibrations and recipes that strangers made: each costs little, or is refused by one
sentence.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from dise_adapters.checkpoint.lora import CONFIG, WEIGHTS, Lora
from dise_core import Calibration, CheckpointError, InputError
from dise_core.scoring.calibration import CalibrationFile
from dise_decide.calibration import DecisionCalibration
from dise_eval.graders.extract import MAX_TEXT
from dise_eval.graders.number import NumberGrader
from dise_eval.graders.part import PartGrader
from tests import tiny_lora
from tests.calibrations import FIGURES, RECORD
from tests.hostile.bounds import bounded

MILLION = 10**6


def adapter(folder: Path, header: dict[str, Any], **fields: object) -> Lora:
    """Write an adapter whose file of weights has this header, and a number for each weight."""
    (folder / CONFIG).write_text(json.dumps(tiny_lora.WRITTEN | fields))
    head = json.dumps(header).encode()
    size = 4 * len(header.keys() - {"__metadata__"})
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", len(head)) + head + bytes(size))
    return Lora(folder)


def weights(*names: str) -> dict[str, Any]:
    offsets = ([4 * at, 4 * at + 4] for at in range(len(names)))
    parts = ({"dtype": "F32", "shape": [1, 1], "data_offsets": place} for place in offsets)
    return dict(zip(names, parts, strict=True))


PAIR = weights(*(f"base_model.model.{'a' * 40}.lora_{letter}.weight" for letter in "AB"))


def test_a_header_that_is_too_long_is_refused_before_it_is_read(tmp_path: Path) -> None:
    metadata = {f"key {at}": "a value" for at in range(MILLION // 2)}
    lora = adapter(tmp_path, PAIR | {"__metadata__": metadata})
    with bounded(0.2, 0.1), pytest.raises(CheckpointError, match=r"header of .* is longer than"):
        list(lora.changes())


def test_the_head_of_an_adapters_file_is_read_twice_however_many_weights_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from dise_adapters.checkpoint import lora as of_lora
    from dise_adapters.checkpoint import weights as of_weights

    opened: list[Path] = []

    def counting(path: Path, **options: Any) -> Any:
        opened.append(path)
        return open_file(path, **options)

    open_file = of_weights.safe_open
    for module in (of_weights, of_lora):
        monkeypatch.setattr(module, "safe_open", counting)
    names = [f"{at}.lora_{letter}.weight" for at in range(9) for letter in "AB"]
    changes = list(adapter(tmp_path, weights(*names)).changes())
    assert len(changes) == 9
    for _, change in changes:
        change.apply(torch.zeros(1, 1))
    assert len(opened) == 2


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|aa)+", "(a|aa)+x{1000}"])
def test_a_pattern_of_alphas_holds_up_no_loading(pattern: str, tmp_path: Path) -> None:
    lora = adapter(tmp_path, PAIR, alpha_pattern={pattern: 2})
    with bounded(0.2, 0.1):
        assert len(list(lora.changes())) == 1


@pytest.mark.parametrize("pattern", ["(a{999}){999}", "(?x)a{1 0 0 0 0 0 0}", "(?<!a)b"])
def test_a_pattern_of_alphas_that_is_none_of_re2_is_refused(pattern: str, tmp_path: Path) -> None:
    lora = adapter(tmp_path, PAIR, alpha_pattern={pattern: 2})
    with pytest.raises(CheckpointError, match=f"{CONFIG}: RE2 cannot use the expression"):
        list(lora.changes())


def test_a_pattern_for_every_module_and_more_is_refused(tmp_path: Path) -> None:
    lora = adapter(tmp_path, PAIR, alpha_pattern={f"{at}": 2.0 for at in range(MILLION // 10)})
    with bounded(0.5, 0.1), pytest.raises(CheckpointError, match="100000 entries, and may have"):
        list(lora.changes())


KNOTS: dict[str, Any] = {"method": "isotonic", "scores": [0.0, 1.0], "probabilities": [0.1, 0.2]}
FIT: dict[str, Any] = {"type": "predicate", "question": None, "num_labels": 1, "num_inputs": 1}
FIT |= {"before": FIGURES, "after": FIGURES}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"scores": [0] * MILLION}, "scores=.* at most 65536 items"),
        ({"scores": [""] * MILLION}, "scores.0='': Input should be a valid number"),
        ({"probabilities": [1] * MILLION}, "probabilities=.* at most 65536 items"),
        ({"probabilities": [2] * MILLION}, "probabilities.0=2: Input should be less than or"),
    ],
)
@pytest.mark.parametrize("kind", [Calibration, DecisionCalibration])
def test_a_calibration_of_a_million_knots_is_refused_at_its_first(
    kind: type[CalibrationFile], changes: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    knots = KNOTS | changes
    fit = FIT | {"map": {"method": "isotonic", "tails": [knots]}}
    decided = {"params": {}, "chat": False, "names": {}, "types": {"predicate": fit}}
    common = {name: RECORD[name] for name in ("model", "fingerprint")} | {"source": "labels"}
    record = RECORD | {"map": knots} if kind is Calibration else common | decided
    (tmp_path / "it.json").write_text(json.dumps(record, separators=(",", ":")))
    with bounded(0.5, 0.3), pytest.raises(InputError, match=problem):
        kind.load(tmp_path / "it.json")


@pytest.mark.parametrize("pattern", ["(a+)+$", r"(\w+\s?)*$x", "a(.*z)?b"])
def test_what_a_recipe_grades_is_found_soon(pattern: str) -> None:
    grader = PartGrader(NumberGrader("4"), pattern)
    with bounded(0.5, 0.1):
        assert not grader.grade("a" * MAX_TEXT + "!").is_correct


def test_a_text_of_boxes_is_graded_soon() -> None:
    with bounded(0.5, 0.1):
        assert not NumberGrader("4", "d1").grade("\\boxed{" * MAX_TEXT).is_correct
