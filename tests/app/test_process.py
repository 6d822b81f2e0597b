"""The command as a process: silent on standard error, and an exit code that says how it ended."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

GENERATE = (
    "import sys; sys.argv[1:] = "
    "['generate', '83,18,75 -> 10', '--max-tokens', '16', '--block-length', '16']"
)
COMMAND = "from dise_app.cli.main import main; main()"


def run(*lines: str) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout, done.stderr


def test_nothing_is_left_out_of_the_interpreters_last_collection() -> None:
    """The hook is registered first and so runs last, after all that the command has registered."""
    hook = "import atexit, gc; atexit.register(lambda: print('frozen:', gc.get_freeze_count()))"
    out, err = run(hook, GENERATE, COMMAND)
    assert out.splitlines()[-1] == "frozen: 0"
    assert err == ""


@pytest.mark.skipif(
    importlib.util.find_spec("triton") is None,
    reason="needs triton, which torch's CUDA wheels bring",
)
def test_the_command_is_silent_where_triton_has_made_objects() -> None:
    """Triton's bindings count at the interpreter's end what they have made, and report on standard
    error what is left.
    """
    out, err = run("from triton._C import libtriton; import triton.language", GENERATE, COMMAND)
    assert out
    assert err == ""


def test_generating_does_without_scikit_learn_and_the_experiments_still_have_it() -> None:
    pytest.importorskip("sklearn")
    command = "from contextlib import suppress\nwith suppress(SystemExit):\n    " + COMMAND
    out, err = run(GENERATE, command, "print('sklearn' in sys.modules)", "import sklearn.metrics")
    assert out.splitlines()[-1] == "False"
    assert err == ""
