"""docs/serving.md as it stands: every curl and every Python example runs against a really started
server.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.app.serving import ServeProcess

PAGE = (Path(__file__).parents[2] / "docs" / "serving.md").read_text()
WRITTEN_FOR = "http://127.0.0.1:8000"
CURLS = re.findall(r"```bash\n(.*?)```", PAGE, flags=re.DOTALL)
PYTHON = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.fixture(scope="module")
def server() -> Iterator[ServeProcess]:
    process = ServeProcess()
    yield process
    process.stop()


@pytest.mark.parametrize("block", CURLS)
def test_every_curl_gets_an_answer(server: ServeProcess, block: str) -> None:
    script = block.replace(WRITTEN_FOR, server.url).replace("curl -s", "curl -s --fail")
    done = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if "metrics" not in block:
        assert json.loads(done.stdout)


def test_every_python_example_prints_what_it_promises(
    server: ServeProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {}
    for block in PYTHON:
        capsys.readouterr()
        exec(compile(block.replace(WRITTEN_FOR, server.url), "serving.md", "exec"), names)
        assert capsys.readouterr().out.strip()
    names["client"].close()
