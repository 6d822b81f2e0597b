"""What examples and pages import of DiSE is public: what a third party needs is exported."""

from __future__ import annotations

import ast
import math
import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

from dise_core import INTERFACE_VERSION, Score
from tests.pages import ROOT, python_of

EVERYWHERE = (
    "dise", "dise_core", "dise_core.testing", "dise_adapters", "dise_app", "dise_decide",
    "dise_eval", "dise_cluster.workers",
)  # fmt: skip


def names_of(module: str) -> set[str]:
    """Return the names that a public module exports; none for any other."""
    if module in EVERYWHERE:
        return set(import_module(module).__all__)
    return set()


def imported(source: str) -> Iterator[tuple[str, str | None]]:
    """Yield the modules of ours that a source imports, each with a name, or None for itself."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.module, alias.name) for alias in node.names)


def private(source: str) -> list[str]:
    """Return the imports of names of ours that are not public."""
    own = {find.partition(".")[0] for find in EVERYWHERE} | {"dise_strategies", "dise_cluster"}
    return [
        f"{module}.{name}"
        for module, name in imported(source)
        if module.partition(".")[0] in own
        and not (module in EVERYWHERE if name is None else name in names_of(module))
    ]


PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
FILES = [*PAGES, *(ROOT / "examples").rglob("*.md"), *(ROOT / "examples").rglob("*.py")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_examples_and_pages_import_public_names_alone(path: Path) -> None:
    blocks = [path.read_text()] if path.suffix == ".py" else python_of(path)
    assert [name for block in blocks for name in private(block)] == []


RENAMING = """
from dise_core.lazy import lazily

__getattr__ = lazily(__name__, {"acme.home": "New"}, {"Old": ("New", "0.3")})
"""


def test_a_renamed_name_is_the_new_one_and_warns_where_it_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "acme"
    package.mkdir()
    (package / "__init__.py").write_text(RENAMING)
    (package / "home.py").write_text("class New: pass")
    (tmp_path / "theirs.py").write_text("from acme import Old")
    monkeypatch.syspath_prepend(tmp_path)
    said = r"acme\.Old is now acme\.New: write the new name, as the old one goes in DiSE 0\.3"
    with pytest.warns(DeprecationWarning, match=said) as told:
        old = import_module("theirs").Old
    assert {Path(warning.filename).name for warning in told} == {"theirs.py"}
    assert old is import_module("acme.home").New
    with pytest.raises(AttributeError, match="has no attribute 'Older'"):
        _ = import_module("acme").Older


def test_what_a_version_promises_is_what_the_examples_depend_on_and_the_change_log_tells() -> None:
    major, minor, _ = map(int, version("dise").split("."))
    promised = f"dise>={major}.{minor},<{major}.{minor + 1}"
    assert f"depend on `{promised}`" in (ROOT / "docs/plugins.md").read_text()
    files = [*(ROOT / "examples").glob("*/pyproject.toml")]
    assert len(files) == 4
    for path in files:
        assert promised in tomllib.loads(path.read_text())["project"]["dependencies"]
    [told] = re.findall(r"^### Interface (\d+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert int(told) == INTERFACE_VERSION


def test_a_private_name_would_be_found() -> None:
    assert private("from dise_core.scoring.score import Score\nimport dise_core.plugins") == [
        "dise_core.scoring.score.Score", "dise_core.plugins.None"
    ]  # fmt: skip
    assert private("from dise_core import Score, Entry\nfrom os import path\nimport dise") == []


def test_the_old_name_of_an_empty_score_says_the_new_one() -> None:
    with pytest.warns(DeprecationWarning, match=r"now Score\.empty: .* goes in DiSE 0\.2"):
        score = Score.of_nothing()
    assert (score.value, score.num_positions) == (-math.inf, 0)
