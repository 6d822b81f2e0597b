"""The model spread over two ranks answers as on one: Qwen3 with its norms of heads, and Dream with
its biases.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("vllm")

from dise_core import LLM, SamplingParams
from tests.vllm.conftest import FOLDERS

SCRIPT = """
import json, sys
from dise_core import LLM, SamplingParams

def main():
    llm = LLM(sys.argv[1], engine="vllm", tensor_parallel_size=2, max_batch_tokens=2048)
    params = SamplingParams(max_tokens=32, block_length=8, tokens_per_step=2)
    answers = llm.generate([[1, 2, 3], [4] * 9], params)
    found = [[a.outputs[0].token_ids, a.outputs[0].score.value] for a in answers]
    print("ANSWERS" + json.dumps(found))

if __name__ == "__main__":
    main()
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("family", ["a2d", "dream"])
def test_two_ranks_write_what_one_writes(family: str, tmp_path: Path) -> None:
    folder = FOLDERS[family](tmp_path / "model")
    (tmp_path / "run.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "run.py"), str(folder)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    [line] = [line for line in done.stdout.splitlines() if "ANSWERS" in line]
    answers = json.loads(line.partition("ANSWERS")[2])
    params = SamplingParams(max_tokens=32, block_length=8, tokens_per_step=2)
    for (token_ids, score), expected in zip(
        answers, LLM(str(folder)).generate([[1, 2, 3], [4] * 9], params), strict=True
    ):
        assert token_ids == list(expected.outputs[0].token_ids)
        assert score == pytest.approx(expected.outputs[0].score.value, abs=1e-4)
