"""dise eval revision: its variants, its figures and its run on the embedded model."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dise_core import InputError, SamplingParams
from dise_eval.cli.revision import variants_of
from dise_eval.experiments.variants import Variant
from dise_eval.reports.variants import revision
from tests.commands import Dise

COMPARED: dict[str, Any] = {
    "rate": [4], "threshold": [0.5, 0.9], "num_answers": [3], "drawn_at": 0.8, "base_length": None,
    "composed": False,
}  # fmt: skip


def test_the_variants_differ_in_what_they_are_named_for() -> None:
    given = {"max_tokens": 30, "reviser": "remask", "reviser_settings": {"rounds": 2}, "seed": 5}
    plain = SamplingParams(max_tokens=30, seed=5, tokens_per_step=4, logprobs=None)
    revised = [
        {"reviser": "remask", "reviser_settings": {"rounds": 2, "threshold": threshold}}
        for threshold in (0.5, 0.9)
    ]
    changes = {
        "as written, 4 a step": {},
        "remask 0.5, 4 a step": revised[0],
        "remask 0.9, 4 a step": revised[1],
        "best of 3, 4 a step": {"best_of": 3, "temperature": 0.8},
        "dise-flexible from 20, 4 a step": {"max_tokens": 20, "length": "dise-flexible"},
        "daedal from 20": {"max_tokens": 20, "length": "daedal", "tokens_per_step": 2},
    }
    assert {str(each): each.params for each in variants_of(COMPARED, given)} == {
        name: plain.model_copy(update=fields) for name, fields in changes.items()
    }


def test_the_answers_of_the_others_are_revised_on_request() -> None:
    given = {"max_tokens": 30, "reviser": "remask", "reviser_settings": {}}
    few = {**COMPARED, "threshold": [0.5]}
    plain, composed = variants_of(few, given), variants_of({**few, "composed": True}, given)
    added = [each for each in composed if each not in plain]
    assert [each for each in composed if each not in added] == plain
    beside = {str(each): str(each.beside) for each in added}
    assert beside == {
        f"{way} + remask 0.5, 4 a step": f"{way}, 4 a step"
        for way in ("best of 3", "dise-flexible from 20")
    }
    for each in added:
        assert each.beside is not None
        revised = {"reviser": "remask", "reviser_settings": {"threshold": 0.5}}
        assert each.params == each.beside.params.model_copy(update=revised)
    assert str(plain[1].beside) == "as written, 4 a step"


def test_the_figures_of_records_that_are_given() -> None:
    """Four questions; which are right, and the passes of each answer, by variant."""
    plain, drawn = SamplingParams(), SamplingParams(best_of=2)
    written = Variant("as written", plain, rate=4)
    revised = Variant("as written", SamplingParams(reviser="remask"), "remask 0.9", 4, written)
    outcomes = [
        (written, "1100", 10),
        (revised, "0111", 14),
        (Variant("best of 2", drawn, rate=2), "1110", 14),
        (Variant("best of 2", drawn, rate=1), "1111", 99),
        (Variant("daedal from 20", plain), "1000", 3),
    ]
    records: Any = [
        {
            "id": f"{variant} | {number}",
            "variant": str(variant),
            "is_correct": is_right == "1",
            "nfe": passes,
            "is_revised": number > 0 if variant.reviser else None,
        }
        for variant, rights, passes in outcomes
        for number, is_right in enumerate(rights)
    ]
    variants = [variant for variant, *_ in outcomes]
    report = revision(SimpleNamespace(variants=variants), records)  # type: ignore[arg-type]
    rows: Any = report.figures.to_dict()
    assert [row["accuracy"]["value"] for row in rows.values()] == [0.5, 0.75, 0.75, 1.0, 0.25]
    assert [row["nfe"] for row in rows.values()] == [10, 14, 14, 99, 3]
    row = rows["remask 0.9, 4 a step"]
    assert (row["revised"], row["mended"], row["spoiled"]) == (0.75, 2, 1)
    assert (row["best_other"], row["best_of_n"]) == ("best of 2, 2 a step", "best of 2, 2 a step")
    assert row["difference"]["value"] == 0.25
    assert "revised" not in rows["as written, 4 a step"]


def test_a_run_is_reported_and_goes_on(dise: Dise, tmp_path: Path) -> None:
    line = (
        "eval revision --dataset countdown-short --limit 2 --max-tokens 24 --block-length 12 "
        "--rate 8 --threshold 0.99 --num-answers 2 --reviser-setting rounds=1 --output"
    )
    arguments = (*line.split(), tmp_path)
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
