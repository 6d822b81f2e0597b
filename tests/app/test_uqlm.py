"""uqlm's white-box scorers on a served model, by the example in a process of its own.

uqlm pins an older transformers than DiSE, so it lives in another environment: DISE_UQLM_PYTHON
names the interpreter that has it, and without it this one is asked.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dise_core import LLM, AsyncLLM, SamplingParams
from tests.app.serving import serving

EXAMPLE = Path(__file__).parents[2] / "examples" / "uncertainty" / "with_uqlm.py"
PYTHON = os.environ.get("DISE_UQLM_PYTHON", sys.executable)
PROMPTS = ["83,18,75 -> 10", "9,5,12 -> 48"]
NEEDED = ("uqlm", "langchain_openai")


def has_uqlm() -> bool:
    looks = f"import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, {NEEDED})))"
    return subprocess.run([PYTHON, "-c", looks], check=False).returncode == 0


@pytest.mark.timeout(1500)
def test_the_example_scores_with_our_log_probabilities() -> None:
    if not has_uqlm():
        pytest.skip("needs uqlm and langchain-openai: name their interpreter in DISE_UQLM_PYTHON")
    llm = LLM("countdown")
    with serving(AsyncLLM(llm.predictor)) as url:
        environment = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
        done = subprocess.run(
            [PYTHON, str(EXAMPLE), f"{url}/v1", *PROMPTS],
            capture_output=True,
            text=True,
            timeout=1200,
            env=environment | {"HF_HUB_OFFLINE": "1"},
            check=False,
        )
    assert done.returncode == 0, done.stderr
    table = json.loads(done.stdout[done.stdout.index("{") :])
    params = SamplingParams(max_tokens=48, block_length=16, selector="response-text", logprobs=2)
    answers = llm.generate(PROMPTS, params)
    assert table["responses"] == [answer.outputs[0].text for answer in answers]
    for index, answer in enumerate(answers):
        tokens = [token for token in answer.outputs[0].tokens if not token.is_end]
        mean = answer.outputs[0].score.value  # DiSE over the text
        least = min(token.logprob for token in tokens if token.logprob is not None)
        margins = [
            math.exp(first) - math.exp(second)
            for (_, first), (_, second) in (token.top_logprobs for token in tokens)
        ]
        assert table["sequence_probability"][index] == pytest.approx(math.exp(mean), abs=1e-6)
        assert table["min_probability"][index] == pytest.approx(math.exp(least), abs=1e-6)
        margin = sum(margins) / len(margins)
        assert table["probability_margin"][index] == pytest.approx(margin, abs=1e-6)
