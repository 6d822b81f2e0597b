"""Verdicts and sentences follow from the intervals, names and colours from what a contender is."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image
from sklearn.metrics import roc_auc_score

from dise_app.evaluation import comparison, plots, results
from dise_app.evaluation.words import family_of, in_words
from dise_app.evaluation.writing import save
from dise_core.records import Record


def estimate(value: float, low: float, high: float, num_questions: int = 100) -> dict[str, Any]:
    return {"value": value, "low": low, "high": high, "num_questions": num_questions}


numbers = st.floats(-1, 1)


@given(numbers, numbers, st.integers(1, 60))
def test_a_difference_is_told_only_if_its_interval_excludes_0(
    one: float, other: float, questions: int
) -> None:
    low, high = sorted((one, other))
    each = estimate((low + high) / 2, low, high, questions)
    text = comparison.conclusion("ROC-AUC", "`mc`", {"dise": each})
    if questions < 20:
        assert text.startswith("**Nothing is concluded on ROC-AUC**")
        return
    told = re.search(r": (higher|lower|not told apart): `dise`", text)
    assert told is not None
    assert (told[1] == "higher") == (low > 0)
    assert (told[1] == "lower") == (high < 0)
    assert ("contains 0, not that the two are equal" in text) == (low <= 0 <= high)


def test_a_conclusion_names_each_contender_once_with_its_interval() -> None:
    differences = {
        "dise:full": estimate(-0.4, -0.5, -0.3),
        "dise:last-10": estimate(0.01, -0.02, 0.04),
        "shadow": estimate(0.03, 0.001, 0.06),
        "interleaved": estimate(-0.01, -0.03, 0.0),
    }
    assert comparison.conclusion("ROC-AUC", "`mc` (0.8)", differences) == (
        "**ROC-AUC beside `mc` (0.8)**: higher: `shadow` (+0.030 [+0.001, +0.060]); lower: "
        "`dise:full` (-0.400 [-0.500, -0.300]); not told apart: `dise:last-10` (+0.010 [-0.020, "
        "+0.040]), `interleaved` (-0.010 [-0.030, +0.000]). Not told apart means that the interval "
        "contains 0, not that the two are equal: its ends say how far apart they may be."
    )
    points = comparison.conclusion("Solved", "x", {"a": estimate(0.055, 0.02, 0.09)}, digits=1)
    assert points == "**Solved beside x**: higher: `a` (+5.5 [+2.0, +9.0] points)."
    undefined = {"a": estimate(0, 0, 0) | {"value": None, "low": None, "high": None}}
    assert comparison.conclusion("ROC-AUC", "x", undefined).startswith("**Nothing is concluded")
    assert comparison.difference_in_words(undefined["a"]) == "-"


def test_another_figure_that_shows_something_else_is_told() -> None:
    pooled = {"a": estimate(0.1, 0.05, 0.2), "b": estimate(0.0, -0.1, 0.1)}
    prr = {"a": estimate(0.1, 0.02, 0.2), "b": estimate(-0.2, -0.3, -0.1)}
    told = comparison.disagreements("PRR", pooled, prr)
    assert told == "By PRR instead, `b` is lower (-0.200 [-0.300, -0.100])."
    assert comparison.disagreements("PRR", pooled, pooled) == ""


def test_an_area_beside_chance_is_higher_only_if_its_interval_is_above_one_half() -> None:
    above = comparison.beside_chance(estimate(0.6, 0.45, 0.7))
    assert [round(above[end], 6) for end in ("value", "low", "high")] == [0.1, -0.05, 0.2]
    assert comparison.verdict(above) == "not told apart"


def test_references_are_chosen_by_their_cost_and_by_no_result() -> None:
    passes = {"dise": 1.0, "mc:a": 31.8, "ar-perplexity": 1.0, "mc:b": 31.6, "shadow": 40.0}
    assert comparison.references_of(passes) == ["mc:a", "ar-perplexity"]
    assert comparison.references_of({"dise": 1.0, "mc:a": 1.0}) == ["mc:a"]
    assert comparison.references_of({"dise:full": 1.0, "shadow": 2.0}) == ["dise:full"]


def test_scorers_are_compared_on_the_same_answers() -> None:
    random = np.random.default_rng(0)
    is_right = random.random((30, 4)) < 0.6
    scores = {"dise": is_right + random.normal(size=(30, 4)), "mc": random.normal(size=(30, 4))}
    records: list[Record] = [
        {
            "answers": [
                {
                    "is_correct": bool(is_right[row, place]),
                    "scores": {
                        name: {"value": float(its[row, place]), "nfe": 1}
                        for name, its in scores.items()
                    },
                }
                for place in range(4)
            ]
        }
        for row in range(30)
    ]
    [(reference, others)] = results.compared(records, ["dise", "mc"]).items()
    assert reference == "mc"
    found = others["dise"]["auroc_pooled"]
    areas = {name: roc_auc_score(is_right.ravel(), its.ravel()) for name, its in scores.items()}
    assert found["value"] == pytest.approx(areas["dise"] - areas["mc"])
    assert comparison.verdict(found) == "higher"
    assert results.compared(records, ["dise", "mc"], ["dise"])["dise"]["mc"]["auroc_pooled"][
        "high"
    ] == pytest.approx(-found["low"])
    base = results.base_rate(records)
    assert base["value"] == pytest.approx(is_right.mean())
    assert comparison.percentage(base).startswith(f"{100 * is_right.mean():.1f} % [")


@pytest.mark.parametrize(
    ("name", "words", "family"),
    [
        ("dise", "DiSE", "ours"),
        ("dise:response-text", "DiSE, answer", "ours"),
        ("dise:last-10", "DiSE, last 10 tokens", "ours"),
        ("dise:first-blocks-1", "DiSE, first block", "ours"),
        ("dise:prompt-last-2+response-first-1", None, "ours"),
        ("interleaved:response-text:k=4", "interleaved, answer, k = 4", "ours"),
        ("mc:response:num_samples=1", "Monte Carlo, answer with its end tokens, 1 sample",
         "baselines"),
        ("mc-llada:full:num_samples=32,cfg_scale=0.5",
         "LLaDA's Monte Carlo, prompt and answer, 32 samples, cfg scale = 0.5", "baselines"),
        ("ar-perplexity", "auto-regressive judge", "baselines"),
        ("mean-entropy:response", "mean-entropy:response", "others"),
        ("oracle", "oracle", "others"),
        ("fixed, 24", "fixed, 24", "baselines"),
        ("dise-flexible from 24, K = 2", "dise-flexible from 24, K = 2", "ours"),
        ("remask 0.9, 4 a step", "remask 0.9, 4 a step", "ours"),
        ("as written, 4 a step", "as written, 4 a step", "baselines"),
    ],
)  # fmt: skip
def test_names_in_words(name: str, words: str | None, family: str) -> None:
    expected = words or "DiSE, last 2 tokens of the prompt and first token of the answer"
    assert (in_words(name), family_of(name)) == (expected, family)


MACHADO = {
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216),
                   (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413),
                     (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602),
                   (0.004733, 0.691367, 0.303900)),
}  # fmt: skip
"""How colours are seen at full severity (Machado, Oliveira and Fernandes, 2009), in linear RGB."""


def seen(colour: str, kind: str) -> np.ndarray:
    value = np.array(to_rgb(colour))
    linear = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    simulated = np.clip(np.array(MACHADO[kind]) @ linear, 0, 1)
    return np.where(
        simulated <= 0.0031308, 12.92 * simulated, 1.055 * simulated ** (1 / 2.4) - 0.055
    )


@pytest.mark.parametrize("kind", MACHADO)
def test_families_and_right_and_wrong_differ_for_colour_blind_readers(kind: str) -> None:
    firsts = [colours[0] for colours in plots.PALETTE.values()]
    for one, other in [*itertools.combinations(firsts, 2), (plots.RIGHT, plots.WRONG)]:
        assert np.linalg.norm(seen(one, kind) - seen(other, kind)) > 0.2


def test_contenders_of_a_plot_have_the_colours_of_their_families_and_marks_of_their_own() -> None:
    names = ["dise:full", "mc", "dise:last-10", "shadow", "interleaved", "oracle"]
    found = plots.styles(names)
    for name, style in found.items():
        assert style.colour in plots.PALETTE[family_of(name)]
    assert len({(style.colour, style.dash) for style in found.values()}) == len(names)
    assert len({style.mark for style in found.values()}) == len(names)


def test_a_plot_is_a_png_of_200_dpi_and_an_svg_that_is_the_same_each_time(tmp_path: Path) -> None:
    figure = Figure(figsize=(2, 1))
    figure.subplots().plot([0, 1], [0, 1])
    for name in ("a", "b"):
        save(figure, tmp_path / f"{name}.png")
    with Image.open(tmp_path / "a.png") as image:
        assert image.size == (400, 200)
        assert image.info["dpi"] == pytest.approx((200, 200), abs=0.1)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert b"</svg>" in (tmp_path / "a.svg").read_bytes()
