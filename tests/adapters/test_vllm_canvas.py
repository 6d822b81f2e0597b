"""DiSE of a block-diffusion model: the exact requests that a vLLM server gets, and what is made of
its answers.
"""

import json
import shutil
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dise_adapters.embedded import CountdownPredictor
from dise_core import LLM, InputError, Read, ScoringParams, TokenLogProbs, TopLogProbs
from dise_core.errors import CheckpointError
from tests import servers
from tests.servers import serving

FOLDER = CountdownPredictor.folder()
SERVED_LIMIT = 128


def logprob(place: int, token_id: int) -> float:
    """What the stub's model says."""
    return -0.01 * place - 0.001 * token_id - 0.5


class Handler(servers.Handler):
    server: Any

    def do_GET(self) -> None:
        served = {"id": "gemma", "root": str(self.server.folder), "max_model_len": 100}
        self.send(200, json.dumps({"data": [served]}).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, body))
        params = body["sampling_params"]
        ids = params["logprob_token_ids"]
        assert len(ids) <= SERVED_LIMIT
        content = []
        for place in range(len(params["extra_args"]["diffusion_seed_canvas"])):
            entries = list(dict.fromkeys([31, *ids]))[: params["logprobs"]]
            tops = [{"token_id": i, "logprob": logprob(place, i), "rank": None} for i in entries]
            content.append({**tops[0], "top_logprobs": tops})
        choice = {"index": 0, "logprobs": {"content": content}}
        self.send(200, json.dumps({"choices": [choice]}).encode())


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Any]:
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(FOLDER / file, tmp_path)
    config = {
        "model_type": "diffusion_gemma",
        "canvas_length": 8,
        "text_config": {"vocab_size": 200, "eos_token_id": [25, 24]},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    stub: Any = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    stub.folder, stub.asked = tmp_path, []
    with serving(stub):
        yield stub


def address(server: Any) -> str:
    return f"canvas+{servers.address(server)}"


def seed_of(params: dict[str, Any]) -> list[int]:
    seed: list[int] = params["extra_args"]["diffusion_seed_canvas"]
    return seed


def test_the_request_seeds_a_read_only_canvas(server: Any) -> None:
    [answer] = LLM(address(server)).score(
        [[1, 2, 3]], [[5, 6, 5]], ScoringParams(selector="response")
    )
    path, body = server.asked[0]
    assert path == "/inference/v1/generate"
    assert body == {
        "model": "gemma",
        "token_ids": [1, 2, 3],
        "sampling_params": {
            "max_tokens": 3,
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": 0,
            "logprobs": 3,
            "logprob_token_ids": [5, 6, 0],
            "detokenize": False,
            "extra_args": {
                "diffusion_seed_canvas": [5, 6, 5],
                "diffusion_canvas_length": 3,
                "diffusion_max_steps": 1,
                "diffusion_read_only": True,
            },
        },
    }
    expected = [logprob(place, token) for place, token in enumerate([5, 6, 5])]
    assert answer.outputs[0].score.value == pytest.approx(np.mean(expected), abs=1e-6)


def test_a_long_response_takes_a_canvas_after_the_other(server: Any) -> None:
    ids = np.arange(1, 22)
    positions = np.arange(4, 21)
    [reading] = LLM(address(server)).predictor.read(
        [Read(ids, positions, TokenLogProbs(ids[positions]))]
    )
    seeds = sorted(seed_of(body["sampling_params"]) for _, body in server.asked)
    assert seeds == [list(range(5, 13)), list(range(13, 21)), [21]]
    assert sorted(len(body["token_ids"]) for _, body in server.asked) == [4, 12, 20]
    places = (positions - 4) % 8
    expected = [
        logprob(place, token)
        for place, token in zip(places.tolist(), ids[positions].tolist(), strict=True)
    ]
    np.testing.assert_allclose(reading.logprobs, expected, atol=1e-6)


def test_more_tokens_than_one_request_takes_are_split(server: Any) -> None:
    predictor = LLM(address(server)).predictor
    predictor._canvas_length = 190  # type: ignore[attr-defined]
    ids = np.arange(1, 180)
    [reading] = predictor.read([Read(ids, np.arange(1, 179), TokenLogProbs(ids[1:]))])
    assert sorted(body["sampling_params"]["logprobs"] for _, body in server.asked) == [52, 128]
    np.testing.assert_allclose(reading.logprobs, [logprob(n, n + 2) for n in range(178)], atol=1e-6)


def test_reads_share_a_canvas_only_where_it_is_the_same(server: Any) -> None:
    ids, other = np.arange(1, 22), np.arange(101, 122)
    asked = [
        (ids, [4, 6], [150, 151]),
        (ids, [4, 5, 13], [7, 8, 9]),  # the first one's canvas, and the next
        (ids, [5, 6], [7, 8]),  # begins elsewhere
        (other, [4, 6], [150, 151]),  # another text
        (np.append(ids[:12], 99), [11, 4], [3, 4]),  # the first one's: what follows is not seen
        (ids, [], []),
    ]
    reads = [
        Read(text, np.array(at, np.int64), TokenLogProbs(np.array(targets, np.int64)))
        for text, at, targets in asked
    ]
    readings = LLM(address(server)).predictor.read(reads)
    params = [body["sampling_params"] for _, body in server.asked]
    assert sorted((seed_of(each), each["logprob_token_ids"][:-1]) for each in params) == [
        (list(range(5, 13)), [3, 4, 7, 8, 150, 151]),
        (list(range(6, 14)), [7, 8]),
        (list(range(13, 21)), [9]),
        (list(range(105, 113)), [150, 151]),
    ]
    places = [[0, 2], [0, 1, 1], [0, 1], [0, 2], [7, 0], []]
    for reading, (_, _, targets), where in zip(readings, asked, places, strict=True):
        assert reading.token_ids.tolist() == targets
        assert reading.logprobs.tolist() == pytest.approx(
            list(map(logprob, where, targets)), abs=1e-6
        )


def test_what_it_cannot_answer_is_refused_before_any_request(server: Any) -> None:
    predictor = LLM(address(server)).predictor
    with pytest.raises(InputError, match="its server writes by itself"):
        predictor.read([Read(np.arange(5), np.array([1]), TopLogProbs(1))])
    with pytest.raises(InputError, match="needs a prompt before its canvas"):
        predictor.read([Read(np.arange(5), np.array([0]), TokenLogProbs(np.array([0])))])
    assert (server.asked, predictor.info.special.eos_ids) == ([], {24, 25})


def test_another_kind_of_model_is_refused(server: Any) -> None:
    (server.folder / "config.json").write_text('{"model_type": "llama", "vocab_size": 32}')
    with pytest.raises(CheckpointError, match="no canvas_length"):
        LLM(address(server))
