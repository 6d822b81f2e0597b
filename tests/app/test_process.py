"""The command as a process: what it imports, silence on standard error, and an exit code that says
how it ended.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from dise_adapters.embedded import CountdownPredictor

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


def test_the_end_waits_for_threads_and_exit_handlers() -> None:
    later = """
import atexit, threading, time
from dise_app.cli import main as command

def late():
    time.sleep(0.2)
    print("thread")

def run(run=command.run):
    atexit.register(print, "handler")
    try:
        run()
    finally:
        threading.Thread(target=late).start()

command.run = run
"""
    out, err = run(GENERATE, later, COMMAND)
    assert out.splitlines()[-2:] == ["thread", "handler"]
    assert err == ""


def test_the_command_runs_without_standard_output() -> None:
    command = 'exec "$0" -m dise models >&-'
    done = subprocess.run(["sh", "-c", command, sys.executable], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


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


def silently(*arguments: object) -> str:
    """Return what `dise ARGUMENTS...` prints; it must say nothing on standard error."""
    out, err = run(f"import sys; sys.argv[1:] = {[*map(str, arguments)]!r}", COMMAND)
    assert err == ""
    return out


def test_a_device_map_is_silent_about_what_it_imports() -> None:
    """torchao, where it is installed, reports on kernels for other devices."""
    pytest.importorskip("accelerate")
    folder = CountdownPredictor.folder()
    short = ("--max-tokens", 8, "--block-length", 8, "--scorer", "dise")
    asked = ("generate", "83,18,75 -> 10", "--model", folder, *short)
    placed = ("--model-args", "device_map=auto,max_memory.cpu=2MB")
    assert "score" in silently(*asked, *placed)


def test_a_gguf_file_is_read_silently(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    from tests import tiny_gguf

    judge = tiny_gguf.write(tmp_path / "judge.gguf")
    asked = ("score", "--response", "83-75=8", "--scorer", "ar-perplexity")
    assert "7 tokens" in silently(*asked, "--judge", judge)


def test_a_model_that_was_trained_on_masks_alone_is_told_its_scorer_once() -> None:
    short = ("--max-tokens", 8, "--block-length", 8, "--n", 2, "--temperature", 1)
    asked = ("generate", "83,18,75 -> 10", "--model", CountdownPredictor.folder(), *short)
    _, err = run(f"import sys; sys.argv[1:] = {[*map(str, asked)]!r}", COMMAND)
    assert err.count("was trained on masks alone, so --scorer written tells more") == 1
    assert err.count("\n") == 1


def test_neither_the_library_nor_the_help_imports_a_heavy_package() -> None:
    modules = "dise_core, dise_strategies.plugin, dise_adapters.plugin, dise_app.cli.main"
    names = ("torch", "transformers", "fastapi", "matplotlib")
    told = f"print([name for name in {names} if name in sys.modules])"
    assert run(f"import sys, {modules}", told) == ("[]\n", "")


def test_a_start_of_the_embedded_model_imports_no_heavy_package() -> None:
    names = ("transformers", "pandas", "scipy", "sklearn", "matplotlib", "vllm", "fastapi",
             "dise_strategies.scorers.monte_carlo")  # fmt: skip
    told = f"lambda: print([name for name in {names} if name in sys.modules])"
    later = f"""
import atexit
from dise_app.cli import main as command

def run(run=command.run):
    atexit.register({told})
    run()

command.run = run
"""
    out, _ = run(GENERATE, later, COMMAND)
    assert out.splitlines()[-1] == "[]"
