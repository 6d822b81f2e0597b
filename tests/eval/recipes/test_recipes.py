"""Recipes: what ships, a stranger's file, kills, time."""

from __future__ import annotations

import json
import math
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dise_core import InputError, Plan, Reading
from dise_core.plans.plan import drive
from dise_core.plugins.discovery import installed_catalog
from dise_core.plugins.kinds import UNMASKING
from dise_eval.experiments import ways
from dise_eval.experiments.ways import Clock
from dise_eval.experiments.waysfile import Published, file_of, files_in, shipped, ways_of
from dise_eval.graders import GRADERS, Mode
from dise_eval.reports.paper import paper_figure
from dise_eval.statistics.resampling import binomial_interval
from tests.commands import Dise
from tests.jsonlines import records_of, written

PROBLEMS = ["83,18,75 -> 10", "44,19,35 -> 98", "58,84,48 -> 22", "12,30,5 -> 23"] * 4
FIGURE = {"percent": 50, "questions": 16, "source": "a table"}
MINE: dict[str, Any] = {
    "model": "countdown",
    "dataset": "./mine.jsonl",
    "prompt": "{{question}}",
    "grader": "countdown",
    "answer": "<answer>(.*?)</answer>",
    "sampling": {"max_tokens": 48, "block_length": 16, "tokens_per_step": 4},
    "published": FIGURE,
}


ASKED = {"prompt": PROBLEMS[0], "question": PROBLEMS[0], "answer": [[83, 18, 75], 10]}


def mine(folder: Path, **changes: Any) -> Path:
    """A recipe of someone's own, beside its questions."""
    numbers = [[int(number) for number in re.findall(r"\d+", text)] for text in PROBLEMS]
    rows = [
        {"prompt": "never asked", "question": text, "answer": [three, target]}
        for text, (*three, target) in zip(PROBLEMS, numbers, strict=True)
    ]
    written(folder / "mine.jsonl", *rows)
    return written(folder / "my.json", {**MINE, **changes})


@pytest.mark.parametrize("name", shipped())
def test_each_recipe_has_its_figure_its_source_and_settings_that_hold(name: str) -> None:
    recipe = shipped()[name]
    way = recipe.way(name)
    assert recipe.published is not None
    assert 0 < recipe.published.percent < 100
    assert re.match(r"https://|arXiv |docs/|settings: https://", recipe.published.source)
    params = way.params
    assert params.seed == 0
    assert {"max_tokens", "block_length", "temperature"} <= recipe.shared.keys()
    installed_catalog().required(UNMASKING, params)
    dataset = recipe.asked()
    row = json.loads(dataset.row_format)
    problem = dataset.problem(row, 0)
    assert "{{" not in problem.prompt
    assert ("recipe-" in dataset.version) == (recipe.prompt is not None)
    mode: Mode = "d1" if recipe.grader == "d1" else "robust"
    version = dataset.grading(problem, mode).version
    assert ("-d1-" in version) == (recipe.grader == "d1")


def test_the_papers_twelve_cells_ship() -> None:
    lengths, tasks = (128, 256, 512), ("countdown", "gsm8k", "math500", "svamp")
    cells = [(task, length) for task in tasks for length in lengths]
    for task, length in cells:
        name, recipe = file_of(f"paper-llada-8b-{task}-{length}")
        assert (recipe.dataset, recipe.way(name).params.max_tokens) == (task, length)
        assert recipe.published is not None
        share = recipe.published.percent / 100
        told = paper_figure("length", task, f"fixed, {length}")
        assert share == pytest.approx(told, abs=1e-9)
        count = recipe.published.questions
        assert round(share * count) / count == pytest.approx(share, abs=5.1e-5)
    assert sum(name.startswith("paper-") for name in shipped()) == len(cells)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"modle": "x"}, r"there is no setting 'modle'. Did you mean 'model'\?"),
        ({"model": 7}, "model=7"),
        ({"published": {"percent": 50, "questions": 4}}, "published.source"),
        ({"published": FIGURE | {"source": ""}}, "published.source=''"),
        ({"published": FIGURE | {"percent": 101}}, "published.percent=101"),
        ({"answer": "(a"}, "answer='.a'"),
        ({"sampling": {"max_tokens": 0}}, "The way 'my' cannot be used: max_tokens=0"),
        ({"recipes": {"a": {}, "b": {}}}, "holds 2 recipes: keep one in it"),
        ({"recipes": []}, "must hold an object like"),
        ({"recipes": {"a": 3}}, "my.json, a"),
        ({"ways": {"a": {}}}, 'of one way: put its options under "shared", and leave out "ways"'),
        ({"published": None}, 'names no ways: give it "ways"'),
    ],
)
def test_a_file_that_is_no_recipe_is_refused_by_what_is_wrong(
    changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=words):
        ways_of(file_of(str(mine(tmp_path, **changes)))[1])


@pytest.mark.parametrize(
    "name",
    [
        "OUTSIDE",
        "../mine.jsonl",
        "in/../../mine.jsonl",
        "in/out/mine.jsonl",
        "link.jsonl",
        "in/o.jsonl",
    ],
)
@pytest.mark.parametrize("verb", [("--recipe",), ("compare",)])
def test_data_that_a_file_names_lie_in_its_folder_and_who_runs_it_may_name_others(
    name: str, verb: tuple[str, ...], dise: Dise, tmp_path: Path
) -> None:
    """By no link out of it either; o.jsonl is a link to itself."""
    folder = tmp_path / "theirs"
    (folder / "in").mkdir(parents=True)
    (folder / "in" / "out").symlink_to(tmp_path)
    (folder / "link.jsonl").symlink_to(tmp_path / "mine.jsonl")
    (folder / "in" / "o.jsonl").symlink_to("o.jsonl")
    written(tmp_path / "mine.jsonl", ASKED)
    name = name.replace("OUTSIDE", str(tmp_path / "mine.jsonl"))
    content: dict[str, Any] = {**MINE, "dataset": name}
    if verb == ("compare",):
        shared = MINE["sampling"]
        content = {"dataset": name, "grader": "countdown", "ways": {"a": {}}, "shared": shared}
    file = written(folder / "my.json", content)
    line = ("eval", *verb, file, "--limit", 1, "--output", tmp_path / "run")
    run = dise(*line)
    assert (run.code, len(run.err.splitlines())) == (2, 1)
    assert f"{file} names the data {name!r:.80}, which do not lie in the folder of that" in run.err
    assert "put them there, or name them yourself, with --data FILE." in run.err
    assert not (tmp_path / "run").exists()
    run = dise(*line, "--data", tmp_path / "mine.jsonl")
    assert run.code == 0, run.err


def test_data_are_read_beside_the_file_that_names_them(
    dise: Dise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link that stays in the folder is followed. The folder of work does not matter."""
    (folder := tmp_path / "theirs" / "in").mkdir(parents=True)
    written(folder / "mine.jsonl", ASKED)
    (folder.parent / "link.jsonl").symlink_to(Path("in") / "mine.jsonl")
    monkeypatch.chdir(folder)
    ways = {"data": "link.jsonl", "grader": "countdown", "ways": {"a": MINE["sampling"]}}
    for verb, content in (
        ("--recipe", MINE | {"dataset": "in/mine.jsonl"}),
        ("--recipe", MINE | {"dataset": "./link.jsonl"}),
        ("compare", ways | {"dataset": "./link.jsonl"}),
    ):
        file = written(folder.parent / "my.json", content)
        run = dise(
            "eval", verb, file, "--limit", 1, "--output", tmp_path / f"run{len(str(content))}"
        )
        assert run.code == 0, run.err


def test_recipes_of_one_file_share_what_they_do_not_say(tmp_path: Path) -> None:
    own = {"a": {}, "b": {"sampling": {"max_tokens": 9}, "published": {"percent": 3}}}
    read = files_in(mine(tmp_path, recipes=own))
    assert read["a"].shared == MINE["sampling"]
    assert read["b"].shared == MINE["sampling"] | {"max_tokens": 9}
    assert read["b"].published == Published(**FIGURE | {"percent": 3})


def test_the_list_has_figures_and_sources(dise: Dise) -> None:
    listed = dise("eval", "--recipe", "list", columns=1000).out
    for name, recipe in shipped().items():
        figure = recipe.published
        assert figure is not None
        line = f"{name}: {figure.percent:g} % of {recipe.dataset} by {recipe.model}\n"
        assert f"{line}    {figure.source}\n" in listed
    lines = dise("eval", "--recipe", "list", columns=80).out.splitlines()
    assert all(len(line) <= 80 or " " not in line.strip() for line in lines)
    assert " ".join(listed.split()) == " ".join(" ".join(lines).split()), "no word is broken"
    rows = json.loads(dise("eval", "--recipe=list", "--json").out)["recipes"]
    assert rows["sdar-4b-gsm8k"]["published"]["percent"] == 89.9
    assert "Did you mean 'llada-8b-gsm8k'" in dise("eval", "--recipe", "llada-8b-gsm").err


def test_a_file_without_a_published_figure_is_no_recipe(dise: Dise, tmp_path: Path) -> None:
    refused = dise("eval", "--recipe", mine(tmp_path, published=None, ways={"a": {}}))
    assert refused.code == 2
    assert 'my has no "published" figure: run it with dise eval compare.' in refused.err


def test_a_published_figure_is_of_a_model_that_is_named(tmp_path: Path) -> None:
    content = {name: value for name, value in MINE.items() if name != "model"}
    file = written(tmp_path / "my.json", content)
    with pytest.raises(InputError, match=r'has a "published" figure, but names no "model"\.'):
        file_of(f"{file}")
    _, recipe = file_of(f"{file}", {"model": "countdown", "data": "other.jsonl"})
    assert recipe.dataset == "./mine.jsonl"


def binomial_tail(num_right: int, num_all: int, share: float) -> float:
    """P(at least so many of num_all are right), where each is with that probability."""
    return sum(
        math.comb(num_all, count) * share**count * (1 - share) ** (num_all - count)
        for count in range(num_right, num_all + 1)
    )


@pytest.mark.parametrize("num_right", [0, 1, 7, 16])
def test_the_interval_is_clopper_and_pearsons(num_right: int) -> None:
    low, high = binomial_interval(num_right, 16 - num_right)
    below = binomial_tail(num_right, 16, low)
    above = binomial_tail(num_right + 1, 16, high)
    assert low == 0 if num_right == 0 else below == pytest.approx(0.025)
    assert high == 1 if num_right == 16 else above == pytest.approx(0.975)


def test_a_strangers_recipe_runs_offline_beside_its_figure(
    dise: Dise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine(tmp_path)
    monkeypatch.chdir(tmp_path)
    run = dise("eval", "--recipe", "./my.json")
    assert run.code == 0, run.err
    assert re.search(r"about 0:\d\d:\d\d in all, by \d+% of 16 questions", run.err)
    results = json.loads(Path("runs/my/results.json").read_text())
    records = records_of(Path("runs/my/journal.jsonl"))[1:]
    num_right = sum(record["is_correct"] for record in records)
    assert num_right >= 4, "the question was asked as the recipe says"
    figures = results["figures"]["my"]
    assert figures["accuracy"]["value"] == num_right / 16
    low, high = binomial_interval(num_right, 16 - num_right)
    assert figures["within"] == ("yes" if low <= 0.5 <= high else "no")
    assert "figure, 50 % of 16 questions (a table), lies " in results["sentence"]
    assert results["grader"] == "countdown-robust-1 of <answer>(.*?)</answer>"
    assert results["prompts"].startswith("recipe-")


def test_options_instead_of_the_recipes_are_told_and_make_figures_incomparable(
    dise: Dise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine(tmp_path, rows="another file")
    monkeypatch.chdir(tmp_path)
    args = ("--limit", 8, "--model", "countdown-blocks", "--block-length", 8, "--seed", 3)
    line = ("eval", "--output", "other", "--recipe", "my.json", "--tokens-per-step", 4)
    run = dise(*line, *args, "--quantization", "int8")
    assert run.code == 0, run.err
    report = (tmp_path / "other" / "report.md").read_text()
    [sentence] = re.findall(r"is not comparable, as this run differs .*: (.*)\.", report)
    changes = sentence.split("; ")
    [source] = [text for text in changes if text.startswith("data mine.jsonl sha256 ")]
    assert source.endswith(" instead of another file")
    assert set(changes) == {
        "model countdown-blocks instead of countdown",
        "block_length 8 instead of 16",
        "quantization int8 instead of as usual",
        "questions 8 instead of 16",
        source,
    }
    assert "| not comparable |" in report
    assert re.search(r"^my .* not comparable$", run.out, re.MULTILINE)
    resumed = dise(*line, *args)
    assert (resumed.code, "deviations" in resumed.err) == (2, True)


def test_the_grader_sees_the_part_that_matches_or_else_all(tmp_path: Path) -> None:
    pattern = "(?i)the answer is (-?[0-9.]+)"
    _, recipe = file_of(str(mine(tmp_path, grader="number", answer=pattern)))
    dataset = recipe.asked()
    row = {"question": "?", "answer": 4}
    grader = dataset.grading(dataset.problem(row, 0), "robust")
    assert grader.grade("The answer is 4. It is not 5.").is_correct
    assert grader.grade("It is 5, no, 4").is_correct
    whole = GRADERS["number"](4, "robust")
    assert not whole.grade("The answer is 4. It is not 5.").is_correct


def test_killed_and_started_again_a_run_ends_with_the_same_bytes(tmp_path: Path) -> None:
    mine(tmp_path)
    line = [sys.executable, "-m", "dise", "eval", "--recipe=my.json", "--max-num-seqs=2"]
    quiet: dict[str, Any] = {"cwd": tmp_path, "stdout": subprocess.DEVNULL}
    quiet["stderr"] = subprocess.PIPE
    whole = subprocess.run([*line, "--output", "whole"], **quiet, check=False)
    assert whole.returncode == 0, whole.stderr
    journal = tmp_path / "killed" / "journal.jsonl"
    with subprocess.Popen([*line, "--output", "killed"], **quiet) as process:
        while process.poll() is None and (
            not journal.exists() or len(journal.read_bytes().splitlines()) < 5
        ):
            time.sleep(0.01)
        process.kill()
    assert process.returncode == -signal.SIGKILL, "it was killed in the middle"
    assert 5 <= len(journal.read_bytes().splitlines()) < 17
    again = subprocess.run([*line, "--output", "killed"], **quiet, check=False)
    assert again.returncode == 0, again.stderr
    for name in ("results.json", "report.md"):
        contents = [(tmp_path / run / name).read_bytes() for run in ("killed", "whole")]
        assert contents[0] == contents[1]
    journals = [tmp_path / run / "journal.jsonl" for run in ("killed", "whole")]
    assert sorted(journals[0].read_bytes().splitlines()) == sorted(
        journals[1].read_bytes().splitlines()
    )


def turns(count: int) -> Plan[Any]:
    for _ in range(count):
        yield []
    return {"turns": count}


@pytest.mark.parametrize(
    ("num_plans", "expected", "told"),
    [
        (4, 99, "about 0:02:07 in all, by 50% of 4 questions"),
        (2, 10, "about 0:01:07 in all, by 50% of 2 questions"),
        (600, 50, "about 5:00:07 in all, by 0% of 600 questions"),
    ],
)
def test_the_time_is_told_once_by_half_of_the_run_or_a_minute(
    num_plans: int, expected: int, told: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    now = 100.0

    def take_three_seconds(_: object) -> list[Reading]:
        nonlocal now
        now += 3
        return []

    monkeypatch.setattr(ways, "time", SimpleNamespace(monotonic=lambda: now))
    clock = Clock(num_plans, expected, began=now - 7)
    results = [drive(clock.timed(turns(10)), take_three_seconds) for _ in range(num_plans)]
    assert results == [{"turns": 10}] * num_plans
    err = capsys.readouterr().err
    assert err.count("dise: about") == 1
    assert told in err
