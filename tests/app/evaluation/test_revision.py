"""dise eval revision: its variants, its figures and its run on the embedded model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dise_app.cli.revision import variants_of
from dise_app.evaluation.revision import figures_of, group_of, unrevised
from dise_core import InputError, SamplingParams
from tests.app.conftest import Run

COMPARED: dict[str, Any] = {
    "rate": [4], "threshold": [0.5, 0.9], "num_answers": [3], "drawn_at": 0.8, "base_length": None,
    "composed": False,
}  # fmt: skip


def test_the_variants_differ_in_what_they_are_named_for() -> None:
    given = {"max_tokens": 30, "reviser": "remask", "reviser_settings": {"widen": 1}, "seed": 5}
    variants = variants_of(COMPARED, given)
    plain = SamplingParams(max_tokens=30, seed=5, tokens_per_step=4, logprobs=None)
    assert variants == {
        "as written, 4 a step": plain,
        **{
            f"remask {threshold}, 4 a step": plain.model_copy(
                update={
                    "reviser": "remask",
                    "reviser_settings": {"widen": 1, "threshold": threshold},
                }
            )
            for threshold in (0.5, 0.9)
        },
        "best of 3, 4 a step": plain.model_copy(update={"best_of": 3, "temperature": 0.8}),
        "dise-flexible from 20, 4 a step": plain.model_copy(
            update={"max_tokens": 20, "length": "dise-flexible"}
        ),
        "daedal from 20": plain.model_copy(
            update={"max_tokens": 20, "length": "daedal", "tokens_per_step": 2}
        ),
    }
    assert [group_of(name) for name in variants][-3:] == [
        "best of 3",
        "dise-flexible from 20",
        "daedal from 20",
    ]


def test_the_answers_of_the_others_are_revised_on_request() -> None:
    given = {"max_tokens": 30, "reviser": "remask", "reviser_settings": {}}
    few = {**COMPARED, "threshold": [0.5]}
    plain, composed = variants_of(few, given), variants_of({**few, "composed": True}, given)
    revised = {"reviser": "remask", "reviser_settings": {"threshold": 0.5}}
    added = {
        f"{group} + remask 0.5, 4 a step": plain[f"{group}, 4 a step"].model_copy(update=revised)
        for group in ("best of 3", "dise-flexible from 20")
    }
    assert composed == plain | added
    assert [unrevised(name) for name in added] == ["best of 3, 4 a step",
                                                   "dise-flexible from 20, 4 a step"]  # fmt: skip
    assert unrevised("remask 0.5, 4 a step") == "as written, 4 a step"


def test_the_figures_of_records_that_are_given() -> None:
    """Four questions; which are right, and the passes of each answer, by variant."""
    told = {
        "as written, 4 a step": ("1100", 10),
        "remask 0.9, 4 a step": ("0111", 14),
        "best of 2, 2 a step": ("1110", 14),
        "best of 2, 1 a step": ("1111", 99),
        "daedal from 20": ("1000", 3),
    }
    variants = {
        name: SamplingParams(reviser="remask" if name.startswith("remask") else None)
        for name in told
    }
    records = [
        {
            "id": f"{name} | {number}",
            "variant": name,
            "is_correct": is_right == "1",
            "nfe": passes,
            "is_revised": number > 0 if name.startswith("remask") else None,
        }
        for name, (rights, passes) in told.items()
        for number, is_right in enumerate(rights)
    ]
    figures = figures_of(SimpleNamespace(variants=variants), records)  # type: ignore[arg-type]
    assert [row["accuracy"]["value"] for row in figures.values()] == [0.5, 0.75, 0.75, 1.0, 0.25]
    assert [row["nfe"] for row in figures.values()] == [10, 14, 14, 99, 3]
    row = figures["remask 0.9, 4 a step"]
    assert (row["revised"], row["mended"], row["spoiled"]) == (0.75, 2, 1)
    assert (row["best_other"], row["best_of_n"]) == ("best of 2, 2 a step", "best of 2, 2 a step")
    assert "revised" not in figures["as written, 4 a step"]


def test_a_run_is_reported_and_goes_on(dise: Callable[..., Run], tmp_path: Path) -> None:
    arguments: list[Any] = ["eval", "revision", "--dataset", "countdown-short", "--limit", 2]
    arguments += ["--max-tokens", 24, "--block-length", 12, "--rate", 8, "--threshold", 0.99]
    arguments += ["--num-answers", 2, "--reviser-setting", "rounds=1", "--output", tmp_path]
    run = dise(*arguments)
    assert run.code == 0, run.err
    assert run.out == (tmp_path / "report.md").read_text()
    figures = json.loads((tmp_path / "results.json").read_text())["figures"]
    names = ["as written", "remask 0.99", "best of 2", "dise-flexible from 16"]
    assert list(figures) == [*(f"{name}, 8 a step" for name in names), "daedal from 16"]
    lines = (tmp_path / "journal.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines[1:]]
    assert len(records) == 5 * 2
    for name, row in figures.items():
        each = [record for record in records if record["variant"] == name]
        assert row["nfe"] == sum(record["nfe"] for record in each) / 2
        assert row["accuracy"]["value"] == sum(record["is_correct"] for record in each) / 2
    plain, revised, drawn = (figures[f"{name}, 8 a step"]["nfe"] for name in names[:3])
    assert plain == 5, "2 blocks of 12 tokens in 2 steps each, then the score"
    assert plain <= drawn <= 2 * plain, "samples that are the same so far share a pass"
    assert revised > plain
    assert (tmp_path / "revision.png").stat().st_size > 5000

    (tmp_path / "journal.jsonl").write_text("\n".join(lines[:4]) + "\n")
    assert dise(*arguments).out == run.out
    assert sorted((tmp_path / "journal.jsonl").read_text().splitlines()[1:]) == sorted(lines[1:])


def test_a_reviser_that_has_no_such_setting_is_refused() -> None:
    with pytest.raises(InputError, match="reviser_settings need a reviser"):
        variants_of(COMPARED, {"reviser": None})
