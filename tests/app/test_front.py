"""The package `dise`, and what the command answers before any verb."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import pytest

import dise as front
import dise_core
import dise_decide
from tests.commands import Dise

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "users.md").read_text()


def test_the_package_dise_has_what_users_need_and_nothing_of_its_own() -> None:
    names = re.findall(r"^- \[`dise_(?:core|decide)\.(\w+)`\]", PAGE, flags=re.MULTILINE)
    assert sorted(front.__all__) == sorted([*names, "__version__"])
    for name in {*names} - {"LLM", "AsyncLLM"}:
        home = dise_core if hasattr(dise_core, name) else dise_decide
        assert getattr(front, name) is getattr(home, name)


def test_the_version_is_the_distributions(dise: Dise) -> None:
    run = dise("--version")
    assert (run.code, run.out, run.err) == (0, f"dise {version('dise')}\n", "")


@pytest.mark.parametrize(
    ("typed", "there", "not_there"),
    [
        ("dise de", "decide", "rank"),
        ("dise generate --scorer in", "interleaved", "dise"),
        ("dise serve --engine v", "vllm", "transformers"),
        ("dise score --ma", "--max-num-seqs", "--model"),
    ],
)
def test_the_shell_completes_verbs_options_and_names(
    typed: str, there: str, not_there: str, dise: Dise, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the script of zsh asks, which `dise --show-completion` prints."""
    for name, value in {"_TYPER_COMPLETE_ARGS": typed, "_DISE_COMPLETE": "complete_zsh"}.items():
        monkeypatch.setenv(name, value)
    told = dise().out
    assert there in told
    assert not_there not in told
