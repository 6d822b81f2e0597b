"""Every page's Python and every page's `dise ...` lines run as they stand, but for those that are
listed here with the reason.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import math
import re
import shlex
import subprocess
from importlib import import_module
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dise_adapters
import dise_app
import dise_cluster.workers
import dise_core
import dise_core.testing
import dise_decide
import dise_eval
from dise_app.terminal.render import legend
from dise_core import TokenSequence
from dise_core.testing import ToyPredictor
from dise_strategies.scorers.dise import DiSE
from dise_strategies.selectors.whole import Response
from tests import reference_a2d
from tests.commands import Dise
from tests.pages import BLOCK, ROOT, lines_of, python_of, shown_of, titled

DOCUMENTED = (
    dise_core,
    dise_decide,
    dise_adapters,
    dise_core.testing,
    dise_cluster.workers,
    dise_app,
    dise_eval,
)
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").glob("*/README.md")),
    *sorted((ROOT / "docs/results").glob("*/README.md")),
]

HUB = "needs a model of 16 GB, or a data set, from the hub"
VLLM = "needs vLLM; tests/vllm run it there"
SGLANG = "needs SGLang; tests/sglang/test_given_texts.py has a server for it"
SERVER = "needs a server; tests/app/test_serve.py starts one for it"
PLUGIN = "needs the plugin installed; tests/app/test_third_party.py does it"
NETWORK = "needs the reader's own class; tests/adapters/test_from_model.py has one"
CLUSTER = "needs a corpus, or Ray; tests/cluster runs such lines"
WALK = "needs what the lines before it write; a test walks the page"
JUDGE = "needs a judge's file; tests/eval/experiments/test_runs.py runs the verb"

PYTHON_ELSEWHERE = {
    ("README.md", 'LLM("GSAI-ML/LLaDA-8B-Instruct")'): HUB,
    ("vllm.md", 'engine="vllm"'): VLLM,
    ("trainers/README.md", "dise_trainers"): PLUGIN,
    ("confidence.md", "Calibration.load"): WALK,
    ("decisions.md", "problems.jsonl"): WALK,
    ("decisions.md", "decisions.json"): WALK,
    ("serving.md", ""): SERVER,
    ("plugins.md", "our_network"): NETWORK,
    ("corpus.md", "import ray"): CLUSTER,
}
"""Blocks that do not run here, by the page and what stands in them."""

LINES_ELSEWHERE = {
    ("early/README.md", "--score late"): "its package is installed by the line in front",
    ("README.md", "--model GSAI-ML/LLaDA-8B-Instruct"): HUB,
    ("README.md", "dise serve --model countdown"): SERVER,
    ("serving.md", "dise serve --model countdown"): SERVER,
    ("confidence.md", "dise score --input labelled.jsonl"): WALK,
    ("security.md", "dise score --input logs.jsonl"): WALK,
    ("confidence.md", "dise calibrate"): WALK,
    ("decisions.md", "--input problems.jsonl"): WALK,
    ("decisions.md", "dise calibrate decided.jsonl"): WALK,
    ("decisions.md", "--calibration decisions.json"): WALK,
    ("confidence.md", "--calibration calibration.json"): WALK,
    ("evaluation.md", "--dataset gsm8k --model GSAI-ML"): HUB,
    ("evaluation.md", "dise-lm-eval --model dise"): HUB,
    ("judge/README.md", "dise eval given"): JUDGE,
    ("corpus.md", "--input"): CLUSTER,
    ("vllm.md", "--engine vllm"): VLLM,
    ("vllm.md", "gpu7:8000"): VLLM,
    ("sglang.md", "gpu7:30000"): SGLANG,
    ("plugins.md", "mean-entropy"): PLUGIN,
    ("plugins.md", "--length halving"): PLUGIN,
    ("plugin/README.md", "mean-entropy"): PLUGIN,
    ("likelihoods/README.md", "--scorer"): PLUGIN,
    ("noise_models/README.md", "--model tiny/"): PLUGIN,
}
"""Lines that do not run here, in the same way."""

SMALLER = {"eval": ("--limit", 1)}
"""What makes an experiment short enough to run here."""


def name_of(page: Path) -> str:
    """Return the page's name, with its folder where the name alone would not do."""
    is_plain = page.parent in (ROOT, ROOT / "docs")
    return page.name if is_plain else f"{page.parent.name}/{page.name}"


def reason(elsewhere: dict[tuple[str, str], str], page: str, text: str) -> str | None:
    return next((why for (p, part), why in elsewhere.items() if p == page and part in text), None)


def names_for(page: str, folder: Path) -> dict[str, Any]:
    """Return the names that a page's blocks take from the reader's own program."""
    if page == "python.md":
        sequence = TokenSequence(np.arange(6), 2)
        plan = DiSE().score(sequence, Response())
        module, tokenizer = reference_a2d.module_and_tokenizer(folder / "Tiny-A2D")
        own = {"module": module, "tokenizer": tokenizer}
        return {"plan": plan, "my_model": ToyPredictor().read, **own}
    if page == "architecture.md":
        return {name: getattr(dise_core, name) for name in dise_core.__all__} | {"np": np}
    return {}


PYTHON = [(page, index) for page in PAGES for index in range(len(python_of(page)))]
LINES = [(name_of(page), line) for page in PAGES for line in lines_of(page)]
RUN_HERE = [(p, line) for p, line in LINES if reason(LINES_ELSEWHERE, p, line) is None]


@pytest.mark.parametrize("page", sorted({page for page, _ in PYTHON}), ids=name_of)
def test_the_python_of_a_page_runs(
    page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for title, text in titled(page.read_text()).items():
        (tmp_path / title).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    name = name_of(page)
    names: dict[str, Any] = {"__name__": "page"} | names_for(name, tmp_path)
    for block in python_of(page):
        if reason(PYTHON_ELSEWHERE, name, block) is None:
            code = compile(block, f"<{name}>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            result = eval(code, names)
            if inspect.iscoroutine(result):
                asyncio.run(result)
    for key, value in names.items():
        if key.startswith("test_") and not inspect.signature(value).parameters:
            value()


def shorter(line: str) -> str:
    """Return the command with fewer samples, and of more than three scores the first, the second
    and the last: each has its panels in the pictures.
    """
    line = line.replace("num_samples=32", "num_samples=2")
    scores = re.findall(r"--score \S+ ", line)
    for score in scores[2:-1]:
        line = line.replace(score, "", 1)
    return line


@pytest.mark.parametrize(("page", "line"), RUN_HERE)
def test_a_line_of_a_page_runs(
    page: str, line: str, dise: Dise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    (tmp_path / "countdown_cd3_test.jsonl").write_text('{"input": "83,18,75", "output": "10"}\n')
    row = {
        "Body": "",
        "Question": "What is 12 plus 7?",
        "Equation": "( 12.0 + 7.0 )",
        "Answer": 19.0,
    }
    (tmp_path / "held_out.jsonl").write_text(json.dumps(row) + "\n")
    scored = [
        {
            "model": "word-problems",
            "prompt": str(number),
            "outputs": [{"score": {"scorer": "dise", "selector": "last-10", "value": -number}}],
            "label": number < 30 or number % 5 == 0,
        }
        for number in range(60)
    ]
    (tmp_path / "labelled.jsonl").write_text("\n".join(map(json.dumps, scored)))
    [source] = [each for each in PAGES if name_of(each) == page]
    for title, text in titled(source.read_text()).items():
        (tmp_path / title).write_text(text)
    _, verb, *rest = shlex.split(shorter(line), comments=True)
    run = dise(verb, *rest, *SMALLER.get(verb, ()))
    assert run.code == 0, run.err
    assert run.out.strip()


SHOWN = [(name_of(page), *shown) for page in PAGES for shown in shown_of(page)]


def figures_apart(text: str) -> str:
    """Return the text without its line breaks, and with # for each fraction, which may round
    otherwise elsewhere.
    """
    return re.sub(r"\d+\.\d+", "#", " ".join(text.split()))


@pytest.mark.parametrize(("page", "line", "output"), SHOWN)
def test_a_line_prints_what_its_page_shows(page: str, line: str, output: str, dise: Dise) -> None:
    run = dise(*shlex.split(line)[1:])
    assert run.code == 0, (page, run.err)
    assert figures_apart(output) in figures_apart(f"{run.out}{legend()}")
    assert max(map(len, output.splitlines())) <= 80


@pytest.mark.parametrize("line", [line for _, line in LINES if "GSAI-ML/LLaDA-8B" in line][:2])
def test_readmes_lines_for_llada_run_on_a_small_model_in_its_format(dise: Dise, line: str) -> None:
    small = line.replace("GSAI-ML/LLaDA-8B-Instruct", "word-problems")
    run = dise(*shlex.split(small)[1:])
    assert run.code == 0, run.err
    assert "score -" in run.out


NARROW = ("README.md", "index.md", "tutorial.md", "python.md", "models.md", "plugins.md", "vllm.md")
"""Pages whose commands fit a window of 1280 pixels unfolded."""


@pytest.mark.parametrize("page", [page for page in PAGES if name_of(page) in NARROW], ids=name_of)
def test_commands_fit_beside_the_contents_of_the_site(page: Path) -> None:
    blocks = [text for kind, text in BLOCK.findall(page.read_text()) if kind in {"", "bash"}]
    assert [line for text in blocks for line in text.splitlines() if len(line) > 82] == []


def test_the_page_of_architecture_tells_the_size_of_each_package() -> None:
    """To a quarter, and to a hundred lines."""
    page = (ROOT / "docs/architecture.md").read_text()
    told = re.findall(r"^\| `(dise\w*)`[^|]*\| ([\d.]+) \|", page, re.MULTILINE)
    folders = {path.parent for path in ROOT.glob("*/__init__.py")}
    folders |= {path.parent for path in ROOT.glob("*/dise_*/__init__.py")}
    folders -= {ROOT / "tests"}
    assert {package for package, _ in told} == {folder.name for folder in folders}
    for package, thousands in told:
        [folder] = [folder for folder in folders if folder.name == package]
        lines = sum(len(path.read_text().splitlines()) for path in folder.rglob("*.py"))
        assert float(thousands) * 1000 == pytest.approx(lines, rel=0.25, abs=100), package


def test_the_first_page_of_the_site_tells_how_llada_scores_a_text() -> None:
    source = SimpleNamespace(file=SimpleNamespace(src_uri="index.md"))
    index = (ROOT / "docs/index.md").read_text()
    page = module_of_docs("hooks").on_page_markdown(index, source)
    assert "| score your own text with LLaDA-8B | [With LLaDA-8B](#with-llada-8b) |" in page
    section = page.partition("\n## With LLaDA-8B\n")[2]
    assert "dise score --model GSAI-ML/LLaDA-8B-Instruct" in section
    assert "\n## " not in section
    for link in re.findall(r"\]\(([\w./-]+\.md)", section):
        assert (ROOT / "docs" / link).is_file()


def module_of_docs(name: str) -> Any:
    """Import a module as mkdocs and `python docs/names.py` do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "docs")
        return import_module(name)


def test_readmes_question_has_a_sure_answer(dise: Dise) -> None:
    [line] = [line for page, line in RUN_HERE if page == "README.md" and "dise decide" in line]
    run = dise(*shlex.split(line)[1:])
    assert "- 1.000" in run.out
    assert "warning" not in run.out


def test_what_runs_elsewhere_is_there() -> None:
    for page, part in PYTHON_ELSEWHERE:
        blocks = [python_of(p)[index] for p, index in PYTHON if name_of(p) == page]
        assert any(part in block for block in blocks), (page, part)
    for page, part in LINES_ELSEWHERE:
        assert any(part in line for p, line in LINES if p == page), (page, part)


def test_the_page_of_logs_walks(
    dise: Dise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line with the slip is the more doubtful one."""
    monkeypatch.chdir(tmp_path)
    (_, shell), (_, command) = BLOCK.findall((ROOT / "docs/security.md").read_text())
    subprocess.run(["bash", "-c", shell], check=True)
    run = dise(*shlex.split(command)[1:])
    assert run.code == 0, run.err
    lines = [json.loads(line) for line in Path("scored.jsonl").read_text().splitlines()]
    values = {line["id"]: line["outputs"][0]["score"]["value"] for line in lines}
    assert values[2] < values[1]


def test_the_shards_of_the_page_of_corpora_are_made_of_the_columns_that_it_names(
    dise: Dise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/corpus.md").read_text()
    [(_, commands), *_] = BLOCK.findall(page.partition("## Shards")[2])
    assert "`in/` has the columns `prompt` and `response`, `texts/` the column `input`" in page
    tables = {
        "in": {"prompt": ["83,18,75 -> 10"] * 4, "response": ["83+18=101"] * 4},
        "texts": {"input": ["Tom has 12 apples. He eats 5 of them. How many are left?"] * 4},
    }
    for folder, columns in tables.items():
        (tmp_path / folder).mkdir()
        file = tmp_path / folder / "rows.parquet"
        parquet.write_table(pyarrow.table(columns), file, row_group_size=1)
    for run in commands.replace("64", "4").splitlines():
        ran = dise(*shlex.split(run)[1:])
        assert (ran.code, "failed" in ran.err) == (0, False), ran.err
    assert "dise: 4 rows, in 4 of 4 shards" in ran.err
    assert "dise: 3 rows were missing and 0 doubled" in ran.err


def test_the_page_of_decisions_walks(
    dise: Dise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The labels take three quarters of the calibration error."""
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs/decisions.md"
    section = page.read_text().partition("## From labels to a gate")[2]
    making, asking = (text for kind, text in BLOCK.findall(section) if kind == "python")
    exec(compile(making, "decisions.md", "exec"), {})
    _, fitting, answering = (
        dise(*shlex.split(line)[1:])
        for line in lines_of(page)
        if "decide" in line or "--dec" in line
    )
    assert "name reaches" in fitting.out
    assert "answer set" in answering.out
    before, after = map(float, re.findall(r"0\.\d{4}", fitting.out)[:2])
    assert after < before / 4
    exec(compile(asking, "decisions.md", "exec"), {})
    assert "coverage=0.9" in capsys.readouterr().out


def test_the_tutorial_shows_a_wrong_answer_that_is_scored_low(dise: Dise) -> None:
    step = (ROOT / "docs/tutorial.md").read_text().partition("## 2. ")[2].partition("## 3. ")[0]
    [(_, command)] = BLOCK.findall(step)
    outputs = json.loads(dise(*shlex.split(command)[1:], "--json").out)["outputs"]
    told = re.findall(r"`(\S+)`, which is (right|wrong), at ([\d.]+)%", step)
    assert [verdict for _, verdict, _ in told] == ["right", "wrong"]
    for (text, verdict, share), output in zip(told, (outputs[2], outputs[3]), strict=True):
        assert output["text"].startswith(text)
        equations = [each.split("=") for each in text.split(",")]
        assert all(eval(left) == int(right) for left, right in equations) is (verdict == "right")
        assert f"{math.exp(output['score']['value']):.1%}" == f"{share}%"


def test_the_tutorial_shows_a_slip_that_remask_mends(dise: Dise) -> None:
    page = ROOT / "docs/tutorial.md"
    step = page.read_text().partition("## 5. ")[2].partition("## 6. ")[0]
    draft, mended = (line for line in lines_of(page) if "--tokens-per-step 4" in line)
    texts, passes = (
        re.findall(r"`([\d+,=]+)`", step),
        re.findall(r"(\d+) passes instead of (\d+)", step),
    )
    asked = zip((draft, mended), texts, reversed(passes[0]), strict=True)
    for line, text, nfe in asked:
        answer = json.loads(dise(*shlex.split(line)[1:], "--json").out)
        assert answer["outputs"][0]["text"].startswith(f"{text}<answer>")
        assert answer["usage"]["nfe"] == int(nfe)
    slips = [[eval(part.replace("=", "==")) for part in text.split(",")] for text in texts]
    assert slips == [[False, False], [True, True]]


REFERENCE = sorted((ROOT / "docs" / "reference").glob("*.md"))
PUBLIC = {f"{module.__name__}.{name}": module for module in DOCUMENTED for name in module.__all__}
ENTRY = re.compile(r"^- \[`(\S+)\.(\w+)`\]\((\S+)\): ((?:.+\n)+?)(?=-|\n|\Z)", flags=re.MULTILINE)
"""A name of the reference: its package, itself, its file and what is said of it."""


def test_the_reference_has_each_public_name_once_and_so_has_that_of_the_site() -> None:
    found = [".".join(entry[:2]) for page in REFERENCE for entry in ENTRY.findall(page.read_text())]
    assert sorted(found) == sorted(PUBLIC)
    site = module_of_docs("hooks").on_page_markdown
    for page in REFERENCE:
        text, source = page.read_text(), SimpleNamespace(src_uri=f"reference/{page.name}")
        stubs = re.findall(
            r"^\n::: (\S+)\n$", site(text, SimpleNamespace(file=source)), re.MULTILINE
        )
        assert stubs == [".".join(entry[:2]) for entry in ENTRY.findall(text)]


@pytest.mark.parametrize("page", REFERENCE, ids=name_of)
def test_the_reference_is_what_docs_names_writes_of_the_docstrings(page: Path) -> None:
    written = module_of_docs("names").written(page.read_text())
    assert written == page.read_text(), "`python docs/names.py` writes it anew"
    for package, name, file, about in ENTRY.findall(page.read_text()):
        assert re.search(rf"\b{name}\b", (page.parent / file).read_text())
        value = getattr(PUBLIC[f"{package}.{name}"], name)
        if isinstance(value, type | FunctionType):
            paragraph, _, _ = (inspect.getdoc(value) or "").partition("\n\n")
            assert about.split() == paragraph.split()


def test_each_method_in_the_reference_says_what_it_does_itself_or_in_its_base() -> None:
    named = [getattr(module, name) for module in DOCUMENTED for name in module.__all__]
    silent = [
        f"{cls.__name__}.{name}"
        for cls in named
        if isinstance(cls, type)
        for name, member in vars(cls).items()
        if isinstance(member, FunctionType | property | classmethod | staticmethod)
        and not name.startswith("_")
        and not inspect.getdoc(getattr(cls, name))
    ]
    assert silent == []
