"""The program that type checkers read runs, and leaves no public name out."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import dise
import dise_adapters
import dise_app
import dise_core
import dise_core.testing
import dise_eval
from tests.typing import usage


def used(module: str) -> set[str]:
    """Return the names that the program takes from what it calls `module`."""
    nodes = ast.walk(ast.parse(Path(usage.__file__).read_text()))
    names = [node for node in nodes if isinstance(node, ast.Attribute)]
    return {node.attr for node in names if ast.unparse(node.value) == module}


def test_the_program_uses_every_public_name() -> None:
    assert used("dise") == set(dise.__all__)
    assert used("core") | used("dise") >= set(dise_core.__all__)
    assert used("core") <= set(dise_core.__all__)
    assert used("adapters") == set(dise_adapters.__all__)
    assert used("testing") == set(dise_core.testing.__all__)
    assert used("app") == set(dise_app.__all__)
    assert used("lab") == set(dise_eval.__all__)


def test_coroutines_are_the_verbs_that_the_program_calls() -> None:
    for name in ("generate", "chat", "fill", "score", "rank", "decide"):
        coroutine = getattr(dise.AsyncLLM, name)
        assert coroutine.__wrapped__ is getattr(dise.LLM, name)
        assert inspect.iscoroutinefunction(coroutine)


def test_the_program_runs(capsys: pytest.CaptureFixture[str]) -> None:
    usage.main()
    usage.read_checkpoint(Path(dise_adapters.__file__).parent / "embedded" / "countdown")
    assert "LLM('countdown', engine='transformers', device='cpu')" in capsys.readouterr().out
