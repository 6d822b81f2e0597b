"""The program that type checkers read runs, and leaves no public name out."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import dise
import dise_adapters
import dise_core
import dise_core.testing
from tests.typing import usage


def imported() -> dict[str, set[str]]:
    tree = ast.parse(Path(usage.__file__).read_text())
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {str(node.module): {alias.name for alias in node.names} for node in froms}


def test_the_program_uses_every_public_name() -> None:
    found = imported()
    assert found["dise"] == set(dise.__all__) - {"__version__"}
    assert found["dise"] | found["dise_core"] == set(dise_core.__all__)
    assert found["dise_adapters"] == set(dise_adapters.__all__)
    assert found["dise_core.testing"] == set(dise_core.testing.__all__)


def test_the_program_runs(capsys: pytest.CaptureFixture[str]) -> None:
    usage.main()
    usage.read_checkpoint(Path(dise_adapters.__file__).parent / "embedded" / "countdown")
    assert "LLM('countdown', engine='transformers', device='cpu')" in capsys.readouterr().out
