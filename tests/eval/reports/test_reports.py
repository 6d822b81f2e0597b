"""A report is a table: in JSON by its rows' names, in Markdown, and as a plot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from sklearn.metrics import roc_auc_score

from dise_eval.calibration import searching
from dise_eval.calibration.fitting import Labels
from dise_eval.calibration.guarantee import Promise
from dise_eval.experiments.records import SampledRecord, rights_of, scores_of
from dise_eval.reports import forest as forests
from dise_eval.reports import reliability
from dise_eval.reports.choosing import choice_figures
from dise_eval.reports.forest import Forest, draw
from dise_eval.reports.paper import paper_figure
from dise_eval.reports.table import FigureTable, text
from dise_eval.reports.uncertainty import base_rate, differences, winner
from dise_eval.statistics.references import references_of
from dise_eval.statistics.resampling import Estimate

ESTIMATE = Estimate(0.5, 0.25, math.nan, 30)
TABLE = FigureTable(
    ("group", "scorer"),
    [
        {"group": "a", "scorer": "dise", "auroc": ESTIMATE, "nfe": 31.789, "why": None},
        {"group": "a", "scorer": "mc", "auroc": Estimate(-0.5, -1, 0, 30, True), "nfe": 1},
    ],
)


def test_a_table_in_json_has_one_level_for_each_column_of_its_index() -> None:
    rows = TABLE.to_dict()["a"]
    assert isinstance(rows, dict)
    assert list(rows) == ["dise", "mc"]
    assert rows["dise"] == {
        "auroc": {"value": 0.5, "low": 0.25, "high": None, "num_questions": 30},
        "nfe": 31.789,
        "why": None,
    }


def test_a_table_in_markdown_leaves_out_empty_columns_and_signs_differences() -> None:
    assert TABLE.markdown().splitlines() == [
        "| group | scorer | ROC-AUC | NFE |",
        "| --- | --- | ---: | ---: |",
        "| a | dise | 0.500 [0.250, -] | 31.79 |",
        "| a | mc | -0.500 [-1.000, +0.000] | 1 |",
    ]
    assert TABLE.markdown(["nfe"]).splitlines()[0] == "| group | scorer | NFE |"


def test_a_plot_has_a_line_for_each_row_also_where_nothing_is_defined(tmp_path: Path) -> None:
    rows = [{"scorer": str(row), "share": Estimate(math.nan, 0, 0, 1)} for row in range(6)]
    for name, table, column in (
        ("two", TABLE, "auroc"),
        ("six", FigureTable(("scorer",), rows), "share"),
    ):
        draw(Forest(name, table, column, "figure", guide=0.5), tmp_path)
    heights = []
    for name in ("two", "six"):
        with Image.open(tmp_path / f"{name}.png") as image:
            assert image.format == "PNG"
            heights.append(image.size[1])
    assert heights[1] - heights[0] == pytest.approx(4 * 0.42 * 150, abs=2)


def test_a_plot_names_its_axes_and_its_marks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures: list[Figure] = []
    monkeypatch.setattr(forests, "save", lambda figure, _: figures.append(figure))
    row = {"minus": "mc", "scorer": "dise", "auroc": ESTIMATE, "the_paper": 0.25}
    table = FigureTable(("minus", "scorer"), [row, row | {"scorer": "mc:b"}])
    draw(Forest("a", table, "auroc", "difference", 0, "no difference"), tmp_path)
    [figure] = figures
    [axes] = figure.axes
    assert axes.get_xlabel() == "difference, with its 95 % interval"
    assert axes.get_ylabel() == "scorer"
    assert [tick.get_text() for tick in axes.get_yticklabels()] == [
        "dise minus mc",
        "mc:b minus mc",
    ]
    [legend] = figure.legends
    named = {text.get_text() for text in legend.get_texts()}
    assert named == {"estimate", "of a baseline", "the paper", "no difference"}


def test_the_picture_of_a_calibration_names_its_lines_and_why_the_threshold_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures: list[Figure] = []
    monkeypatch.setattr(reliability, "save", lambda figure, _: figures.append(figure))
    scores = -np.arange(300.0)
    labels = Labels(scores, np.arange(300) < 150, np.arange(300))
    found = searching.search("ltt", labels, Promise(0.1, 0.95))
    reliability.picture(np.linspace(1, 0, 300), labels, found, tmp_path / "a.png")
    left, right = figures[0].axes
    for axes in (left, right):
        assert axes.get_xlabel()
        assert axes.get_ylabel()
    _, names = right.get_legend_handles_labels()
    share = f"{found.threshold.coverage:.1%}"
    assert names[1:3] == ["promised: at most 10.0%", f"threshold: score -157, keeps {share}"]
    assert names[3:] == [f"most that may be wrong, where tried: {it}" for it in ("passes", "fails")]
    lines = {str(line.get_label()): line for line in right.lines}
    kept = lines[names[3]].get_xdata(), lines[names[3]].get_ydata()
    assert max(kept[0]) == found.threshold.coverage
    assert max(kept[1]) <= 0.1 < min(lines[names[4]].get_ydata())
    _, names = left.get_legend_handles_labels()
    assert len(names) == 4


def test_references_are_chosen_by_their_cost_and_by_no_result() -> None:
    passes = {"dise": 1.0, "mc:a": 31.8, "ar-perplexity": 1.0, "mc:b": 31.6, "shadow": 40.0}
    assert references_of(passes) == ["mc:a", "ar-perplexity"]
    assert references_of({"dise": 1.0, "mc:a": 1.0}) == ["mc:a"]
    assert references_of({"dise:full": 1.0, "shadow": 2.0}) == ["dise:full"]


def record(number: int, answers: Sequence[tuple[str | None, bool, float]]) -> SampledRecord:
    """A record of answers (extracted, is right, score); the contender b has no opinion."""
    return {
        "id": str(number),
        "nfe": {"all": 1, "one": 1},
        "greedy": {"text": "", "is_correct": True, "extracted": None},
        "answers": [
            {
                "text": "",
                "is_correct": is_right,
                "extracted": extracted,
                "scores": {
                    name: {"value": value, "rank_value": value, "log_likelihood": None, "nfe": 1}
                    for name, value in (("a", score), ("b", None), ("dise", None), ("shadow", None))
                },
            }
            for extracted, is_right, score in answers
        ],
    }


def test_scorers_are_compared_on_the_same_answers() -> None:
    random = np.random.default_rng(0)
    is_right = random.random((30, 4)) < 0.6
    scores = is_right + random.normal(size=(30, 4))
    records = [
        record(row, [(None, bool(right), float(score)) for right, score in zip(*each, strict=True)])
        for row, each in enumerate(zip(is_right, scores, strict=True))
    ]
    assert np.array_equal(scores_of(records, "a"), scores)
    assert np.isneginf(scores_of(records, "b")).all()
    assert np.array_equal(rights_of(records), is_right)
    [row] = differences(records, ["a", "b"], ["b"]).rows
    found = row["auroc_pooled"]
    assert isinstance(found, Estimate)
    expected = roc_auc_score(is_right.ravel(), scores.ravel()) - 0.5
    assert (found.value, found.is_difference) == (pytest.approx(expected), True)
    assert found.low > 0
    [back] = differences(records, ["a", "b"], ["a"]).rows
    assert isinstance(back["auroc_pooled"], Estimate)
    assert back["auroc_pooled"].high == pytest.approx(-found.low)
    told = winner(records, ["b", "a"])
    assert told.startswith(
        f"`a` has the highest pooled ROC-AUC on these labels, {expected + 0.5:.3f}"
    )
    assert told.endswith(f"; beside `b` {text(found)}.")
    assert (
        winner(records, ["b", "shadow", "dise"]).count("+0.000 [+0.000, +0.000], no difference")
        == 2
    )
    [rate] = base_rate(records).rows
    assert isinstance(rate["right"], Estimate)
    assert (rate["num_answers"], rate["right"].value) == (120, pytest.approx(is_right.mean()))


def test_a_majority_vote_shares_ties() -> None:
    answers = [
        [("1", True), ("1", True), ("2", False)],
        [("1", True), ("2", False), (None, False)],
        [(None, False), (None, False), (None, False)],
    ]
    records = [
        record(number, [(text, right, -float(place)) for place, (text, right) in enumerate(each)])
        for number, each in enumerate(answers)
    ]
    shares = {row["chosen_by"]: row["accuracy"] for row in choice_figures(records, ["a"]).rows}
    for name, expected in (("majority vote", 1.5 / 3), ("oracle", 2 / 3), ("a", 2 / 3)):
        found = shares[name]
        assert isinstance(found, Estimate)
        assert found.value == pytest.approx(expected)


@pytest.mark.parametrize(
    ("figure", "dataset", "name", "expected"),
    [
        ("length", "gsm8k", "fixed, 266", 0.7680),
        ("length", "svamp", "dise-flexible from 512, K = 2, D = 20", None),
        ("auroc", "countdown-short", "dise:full at 128", 0.616),
        ("likelihood", "gpqa", "ar-perplexity", 0.304),
    ],
)
def test_the_papers_figures_stand_beside_its_own_cells(
    figure: str, dataset: str, name: str, expected: float | None
) -> None:
    assert paper_figure(figure, dataset, name) == expected
