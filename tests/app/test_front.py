"""The package `dise`, and what the command answers before any verb."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

import dise as front
import dise_core
from tests.app.conftest import Run

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text()


def listed(section: str) -> list[str]:
    """Return the names in a table of docs/python.md."""
    part = PAGE.partition(f"## {section}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", part, flags=re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`(\w+)`", row)]


def test_the_package_dise_has_what_users_need_and_nothing_of_its_own() -> None:
    names = [*listed("For users"), *listed("Errors")]
    assert sorted(front.__all__) == sorted([*names, "__version__"])
    for name in names:
        assert getattr(front, name) is getattr(dise_core, name)


def test_the_version_is_the_distributions(dise: Callable[..., Run]) -> None:
    run = dise("--version")
    assert (run.code, run.out, run.err) == (0, f"dise {version('dise')}\n", "")


@pytest.mark.parametrize(
    ("typed", "there", "not_there"),
    [
        ("dise de", "decide", "rank"),
        ("dise generate --scorer in", "interleaved", "dise"),
        ("dise serve --engine v", "vllm", "transformers"),
        ("dise score --max-b", "--max-batch-tokens", "--max-num-seqs"),
    ],
)
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_completes_verbs_options_and_names(
    shell: str,
    typed: str,
    there: str,
    not_there: str,
    dise: Callable[..., Run],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As the shell's script asks, which `dise --show-completion` prints."""
    asked = {
        "bash": {"COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))},
        "zsh": {"_TYPER_COMPLETE_ARGS": typed},
        "fish": {"_TYPER_COMPLETE_ARGS": typed, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    for name, value in {**asked, "_DISE_COMPLETE": f"complete_{shell}"}.items():
        monkeypatch.setenv(name, value)
    told = dise().out
    assert there in told
    assert not_there not in told
