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


@pytest.mark.parametrize(
    ("group", "typed", "hint"),
    [
        ((), "generat", ". Did you mean 'generate'?"),
        ((), "sevre", ". Did you mean 'serve'?"),
        (("eval",), "likelihod", ". Did you mean 'likelihood'?"),
        ((), "zzzz", "."),
    ],
)
def test_a_misspelt_verb_suggests_the_nearest(
    dise: Dise, group: tuple[str, ...], typed: str, hint: str
) -> None:
    refused = dise(*group, typed, "--model", "countdown")
    assert refused.code == 2
    assert f"No such command {typed!r}{hint}\n" in refused.err


@pytest.mark.parametrize(
    ("verb", "instead"), [("analyze", "as dise eval coherence"), ("recipes", "--recipe list shows")]
)
def test_a_verb_that_was_taken_out_names_what_to_use(dise: Dise, verb: str, instead: str) -> None:
    refused = dise(verb, "--help")
    assert (refused.code, refused.out) == (2, "")
    assert f"Error: verb '{verb}' was taken out: " in refused.err
    assert instead in refused.err
