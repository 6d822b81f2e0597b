"""The model spread over two ranks answers as on one: Qwen3 with its norms of heads in process,
Dream with its biases over HTTP, as each start takes most of a minute of both cores.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("vllm")

from dise_core import LLM, Read, SamplingParams, TokenLogProbs, TopLogProbs
from tests.vllm.conftest import FOLDERS
from tests.vllm.serving import READING, server

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
def test_two_ranks_write_what_one_writes(tmp_path: Path) -> None:
    folder = FOLDERS["a2d"](tmp_path / "model")
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


@pytest.mark.timeout(700)
def test_two_ranks_behind_a_server_answer_as_one(tmp_path: Path) -> None:
    folder = FOLDERS["dream"](tmp_path / "model")
    ids = np.random.default_rng(0).integers(0, 45, 30)
    reads = [
        Read(ids, np.arange(30), TokenLogProbs(ids)),
        Read(ids, np.arange(5, 20), TopLogProbs(4)),
    ]
    prompts, params = (
        [[1, 2, 3], [4] * 9],
        SamplingParams(max_tokens=32, block_length=8, tokens_per_step=2),
    )
    with server(folder, tmp_path / "log", *READING, "--tensor-parallel-size", "2") as running:
        theirs = LLM(running.address)
        answers, readings = theirs.generate(prompts, params), theirs.predictor.read(reads)
    ours = LLM(str(folder))
    for one, other in zip(answers, ours.generate(prompts, params), strict=True):
        assert one.outputs[0].token_ids == other.outputs[0].token_ids
        assert one.outputs[0].score.value == pytest.approx(other.outputs[0].score.value, abs=1e-4)
    for one, other in zip(readings, ours.predictor.read(reads), strict=True):
        np.testing.assert_array_equal(one.token_ids, other.token_ids)
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-4)
