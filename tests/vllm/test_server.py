"""A real vLLM server with our plugin: the same answers over HTTP, refusals that harm nobody, and a
server that dies. The families are compared in process; what a server adds knows none of them.
"""

from collections.abc import Iterator

import httpx
import numpy as np
import pytest

pytest.importorskip("vllm")

from dise_adapters.vllm.server import http
from dise_core import LLM, SamplingParams, ScoringParams
from dise_core.errors import ModelError
from dise_decide import ChoiceQuestion, DecisionParams
from dise_decide.llm import decisions
from tests.adapters.agreement import assert_alike
from tests.vllm.conftest import FOLDERS
from tests.vllm.serving import READING, Server, server

TOLERANCE = 1e-4
CLOZE = DecisionParams(layout="cloze")
PROMPTS = [np.random.default_rng(n).integers(0, 45, n).tolist() for n in (1, 5, 12, 30)]

pytestmark = pytest.mark.timeout(800)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("served")
    with server(FOLDERS["dream"](folder / "model"), folder / "log", *READING) as started:
        yield started


def test_a_server_writes_what_the_model_writes(running: Server) -> None:
    params = SamplingParams(
        max_tokens=32, block_length=8, tokens_per_step=2, temperature=1.0, seed=0
    )
    ours, theirs = (
        LLM(model).generate(PROMPTS, params) for model in (running.address, running.folder)
    )
    assert_alike(ours, theirs, TOLERANCE)


def test_a_server_scores_as_the_model_scores(running: Server) -> None:
    for scorer, settings in (("dise", {}), ("mc", {"num_samples": 4}), ("interleaved", {})):
        params = ScoringParams(scorer=scorer, selector="response", scorer_settings=settings)
        ours, theirs = (
            LLM(model).score([[1, 2, 3]], [[4, 5, 6, 7]], params)
            for model in (running.address, running.folder)
        )
        assert_alike(ours, theirs, TOLERANCE)


def test_a_server_decides_as_the_model_decides(running: Server) -> None:
    question = ChoiceQuestion(instructions=" which is it ", choices=["cat", "dog", "no animal"])
    (one,), (other,) = (
        llm.do(decisions(llm.planner, ["it says meow"], [question], CLOZE))[0].answers
        for llm in map(LLM, (running.address, str(running.folder)))
    )
    assert one.diagnostics.logprobs == pytest.approx(other.diagnostics.logprobs, abs=TOLERANCE)


def top(position: int) -> dict[str, object]:
    return {"positions": [position], "readout": "top_logprobs", "k": 1}


NAMED = top(0) | {"positions": [0] * 100, "ids": [1] * 4096}
"""One that is allowed, sixty-four of which are not."""


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"token_ids": [1, 2], "reads": [top(5)]},
            "rows.0: a Read asks for positions outside 0..1: [5]",
        ),
        ({"token_ids": [1, 999], "reads": [top(1)]}, "outside the vocabulary: ids are 0 to"),
        ({"token_ids": [1, -1], "reads": [top(1)]}, "outside the vocabulary: ids are 0 to"),
        ({"token_ids": [1] * 600, "reads": [top(1)]}, "longer than the model's limit of 96"),
        (
            {"token_ids": [1], "reads": [{"positions": [0], "readout": "distribution"}]},
            "do not travel over HTTP",
        ),
        ({"token_ids": [1], "reads": [NAMED] * 64}, "numbers, at most 16777216 are sent"),
        ({"token_ids": [1], "reads": []}, "at least 1 item"),
        ({"token_ids": [1], "reads": [top(0)], "colour": "red"}, "colour"),
    ],
)
def test_refusals_leave_the_engine_as_it_was(
    running: Server, row: dict[str, object], message: str
) -> None:
    answer = httpx.post(f"{running.address}/v1/dise/read", json={"rows": [row]})
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]
    test_a_server_scores_as_the_model_scores(running)


def test_another_model_is_not_there(running: Server) -> None:
    body = {"model": "other", "rows": [{"token_ids": [1], "reads": [top(0)]}]}
    answer = httpx.post(f"{running.address}/v1/dise/read", json=body)
    assert (answer.status_code, "there is no model 'other'" in answer.text) == (404, True)


def test_stock_pooling_tells_of_every_token(running: Server) -> None:
    answer = httpx.post(f"{running.address}/pooling", json={"input": [5, 6, 7, 8]})
    [row] = answer.json()["data"]
    [scored] = LLM(running.folder).score([[]], [[5, 6, 7, 8]], ScoringParams(selector="full"))
    assert sum(token[0] for token in row["data"]) / 4 == pytest.approx(
        scored.outputs[0].score.value, abs=TOLERANCE
    )


def test_a_killed_server_is_a_clear_error(running: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "ATTEMPTS", 2)
    llm = LLM(running.address)
    running.process.kill()
    running.process.wait(60)
    with pytest.raises(ModelError, match="cannot be reached"):
        llm.score([[1, 2, 3]], [[4, 5]])
