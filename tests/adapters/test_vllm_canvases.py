"""DiffusionGemma on a vLLM server without our plugin: read by seeded canvas, written by vLLM. The
server answers with transformers' encoder and decoder, or with the logits of a table; tests/vllm
asks vLLM's own code.
"""

from __future__ import annotations

import math
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest

from dise_adapters.vllm.server import http
from dise_adapters.vllm.server.canvases import CanvasReader
from dise_adapters.vllm.server.http import AT_ONCE, Connection
from dise_core import (
    LLM,
    AsyncLLM,
    Candidates,
    Distribution,
    Guidance,
    Ids,
    InputError,
    Read,
    SamplingParams,
    TokenLogProbs,
    TopLogProbs,
)
from dise_core.errors import ModelError, ModelOutputError
from dise_core.scoring.calibration import fingerprint
from tests import calibrations
from tests.app.serving import serving as serving_llm
from tests.canvas_server import CanvasServer
from tests.commands import Dise
from tests.pages import ROOT
from tests.reference_diffusion_gemma import CANVAS as LENGTH
from tests.reference_diffusion_gemma import END, TURN_END, Reference, write
from tests.servers import serving

SIZE, START = 320, 5
TABLE = np.random.default_rng(0).normal(0, 3, (SIZE, SIZE))


def of_table(before: list[int], canvas: list[int]) -> Any:
    """Return logits by which each token of a canvas, and of the text before it, counts."""
    return TABLE[canvas] + TABLE[sum(canvas) % SIZE] + TABLE[sum(before) % SIZE]


def logprobs_of(logits: Any) -> Any:
    return logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)


@pytest.fixture
def table() -> Iterator[CanvasServer]:
    with serving(CanvasServer("", of_table, LENGTH, {END})) as server:
        yield server


@pytest.fixture
def reader(table: CanvasServer) -> CanvasReader:
    return CanvasReader(Connection(table.address), "gemma", LENGTH)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("diffusion-gemma"))


@pytest.fixture(scope="module")
def reference(folder: Path) -> Reference:
    return Reference(folder)


@pytest.fixture
def server(folder: Path, reference: Reference) -> Iterator[CanvasServer]:
    ends = {END, TURN_END}

    def logits(before: list[int], canvas: list[int]) -> Any:
        return reference.logprobs(np.array([*before, *canvas]), len(before))

    with serving(CanvasServer(str(folder), logits, LENGTH, ends)) as server:
        yield server


def text(num_tokens: int) -> Ids:
    return np.random.default_rng(num_tokens).integers(0, SIZE, START + num_tokens)


def read_of(ids: Ids, readout: Any = None, positions: Any = None, **more: Any) -> Read:
    positions = np.arange(START, len(ids)) if positions is None else np.array(positions)
    readout = readout or TokenLogProbs(ids[positions])
    return Read(ids, positions, readout, start=START, **more)


@pytest.mark.parametrize("length", [5, 64, 150])
def test_a_text_of_three_canvases_is_read_as_transformers_reads_it(
    server: CanvasServer, reference: Reference, length: int
) -> None:
    random = np.random.default_rng(length)
    ids = random.integers(6, 262, length + 3 * LENGTH)
    response = [int(i) for i in ids[length:]]
    [answer] = LLM(server.address).score(ids[:length].tolist(), response, finished=False)
    own = [token.logprob for token in answer.outputs[0].tokens]
    expected = reference.logprobs(ids, length)[np.arange(len(own)), response]
    np.testing.assert_allclose(own, expected, atol=1e-5)


def test_300_distinct_ids_are_told_by_requests_of_128(
    table: CanvasServer, reader: CanvasReader
) -> None:
    ids, named = text(LENGTH), tuple(range(10, 310))
    [reading] = reader.read([read_of(ids, TopLogProbs(3, named), [START + 8])])
    expected = logprobs_of(of_table(ids[:START].tolist(), ids[START:].tolist()))[8]
    np.testing.assert_allclose(reading.logprobs[0, 3:], expected[10:310], atol=1e-4)
    assert reading.token_ids[0, :3].tolist() == np.argsort(-expected)[:3].tolist()
    num_named = [len(body.get("logprob_token_ids", ())) for body in table.asked]
    assert (num_named[0], max(num_named), len(num_named)) == (0, 128, 4)


def test_what_is_asked_is_filtered_by_nothing_and_at_no_temperature(
    table: CanvasServer, reader: CanvasReader
) -> None:
    ids = text(2 * LENGTH)
    reader.read([read_of(ids, cache_salt="a client's secret"), read_of(ids)])
    assert {(body["temperature"], body["top_p"], body["top_k"]) for body in table.asked} == {
        (1, 1, 0)
    }
    salts = {body.get("cache_salt") for body in table.asked}
    assert len(salts) == 2
    assert None in salts
    assert "secret" not in str(table.asked)
    for body in table.asked:
        seed = body["vllm_xargs"]["diffusion_seed_canvas"]
        assert body["prompt"] + seed in (ids.tolist(), ids[:-LENGTH].tolist())


def test_hidden_tokens_are_read_after_the_finished_text_before_them(reader: CanvasReader) -> None:
    finished, drawn = text(2 * LENGTH), text(2 * LENGTH)[::-1].copy()
    [reading] = reader.read([read_of(drawn, TokenLogProbs(finished[START:]), context_ids=finished)])
    first = START + LENGTH
    expected = logprobs_of(of_table(finished[:first].tolist(), drawn[first:].tolist()))
    own = expected[np.arange(LENGTH), finished[first:]]
    np.testing.assert_allclose(reading.logprobs[LENGTH:], own, atol=1e-4)


def test_the_log_probability_of_a_sure_token_is_that_of_all_others(
    table: CanvasServer, reader: CanvasReader
) -> None:
    logits = np.full((LENGTH, SIZE), -np.inf)
    logits[:, 7], logits[:, 9] = 30, [11, -10, *[0.0] * (LENGTH - 2)]
    table.logits = lambda before, canvas: logits
    ids = np.full(START + LENGTH, 7)
    [reading] = reader.read([read_of(ids)])
    np.testing.assert_allclose(reading.logprobs[:2], [-5.6028e-9, -4.2484e-18], rtol=1e-4)


def test_an_impossible_token_has_no_probability_at_all(
    table: CanvasServer, reader: CanvasReader
) -> None:
    logits = np.full((LENGTH, SIZE), -np.inf)
    logits[:, 7] = 0
    table.logits = lambda before, canvas: logits
    [reading] = reader.read([read_of(text(LENGTH), TopLogProbs(1, (7, 8)), [START])])
    assert reading.logprobs.tolist() == [[0.0, 0.0, -math.inf]]


def test_requests_run_together_and_no_more_than_eight(
    table: CanvasServer, reader: CanvasReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    once, running, most = Connection._once, 0, 0

    async def counted(*args: Any) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            return await once(*args)
        finally:
            running -= 1

    monkeypatch.setattr(Connection, "_once", counted)
    table.max_model_len = 1000
    positions = START + LENGTH * np.arange(2 * AT_ONCE)
    reader.read([read_of(text(2 * AT_ONCE * LENGTH), TopLogProbs(1), positions)])
    assert (most, len(table.asked)) == (AT_ONCE, 2 * AT_ONCE)


@pytest.mark.parametrize(
    ("changes", "readout", "message"),
    [
        ({"length": 16}, None, r"diffusion_canvas_length must be .* no larger than the served"),
        ({"vocab_size": 9}, None, r"diffusion_seed_canvas ids must be in \[0, 9\)"),
        ({"max_logprobs": 5}, None, "logprobs of 20, which is greater than max allowed: 5"),
        ({}, TopLogProbs(21), "logprobs of 21, which is greater than max allowed: 20"),
        ({"max_model_len": 30}, None, "maximum context length is 30 tokens"),
        ({}, TopLogProbs(2, with_entropy=True), "neither all nor the entropy: take another"),
        ({}, Distribution(), "neither all nor the entropy: take another"),
        ({}, Candidates(top_k=3), "no option of drawing applies"),
        ({}, Candidates(forbidden=(3,)), "no option of drawing applies"),
    ],
)
def test_what_vllm_cannot_answer_is_refused_in_one_sentence(
    table: CanvasServer, reader: CanvasReader, changes: dict[str, int], readout: Any, message: str
) -> None:
    for name, value in changes.items():
        setattr(table, name, value)
    with pytest.raises(InputError, match=message) as caught:
        reader.read([read_of(text(LENGTH), readout)])
    assert len(str(caught.value).splitlines()) == 1


def test_neither_a_part_of_a_canvas_nor_a_guided_one_is_written(reader: CanvasReader) -> None:
    ids = text(2 * LENGTH)
    for first, last in ((START + 1, len(ids)), (START, len(ids) - 1)):
        with pytest.raises(InputError, match="no part of an answer is written again"):
            reader.read([read_of(ids, Candidates(), np.arange(first, last))])
    with pytest.raises(InputError, match="guidance needs the transformers engine"):
        reader.read([read_of(ids, Candidates(), guidance=Guidance(ids, 1.0))])


def test_a_vllm_that_would_write_another_canvas_is_refused(table: CanvasServer) -> None:
    table.version = "0.31.4"
    with pytest.raises(ModelError, match=r"runs vLLM 0\.31\.4, .*: run vLLM 0\.32 or newer"):
        CanvasReader(Connection(table.address), "gemma", LENGTH)


def told(**changes: Any) -> dict[str, Any]:
    names = [f"token_id:{token}" for token in range(LENGTH)]
    whole = {
        "tokens": names,
        "token_logprobs": [-1.0] * LENGTH,
        "top_logprobs": [dict.fromkeys(names, -4.0)] * LENGTH,
    }
    return {"choices": [{"logprobs": whole | changes, "finish_reason": "length"}]}


@pytest.mark.parametrize(
    ("answer", "readout", "message"),
    [
        (told(top_logprobs=[]), None, "the server answered 0 of 32 tokens of a canvas"),
        (told(top_logprobs=[{"token_id:1": -1.0}] * LENGTH), None, "the server left out token"),
        (told(top_logprobs=[{" the": -1.0}] * LENGTH), None, "an answer of another shape"),
        (told(top_logprobs=[{"token_id:1": 0.5}] * LENGTH), None, "an answer of another shape"),
        ({"choices": []}, None, "an answer of another shape"),
        (told(tokens=["token_id:1"]), Candidates(), "wrote 1 of 32 tokens of a canvas and no end"),
        (told(tokens=[]), Candidates(), "wrote 0 of 32 tokens of a canvas and no end"),
    ],
)
def test_what_no_vllm_answers_is_no_reading(
    table: CanvasServer, reader: CanvasReader, answer: Any, readout: Any, message: str
) -> None:
    table.complete = lambda _: answer  # type: ignore[method-assign]
    with pytest.raises(ModelOutputError, match=message):
        reader.read([read_of(text(LENGTH), readout)])


ANSWER = [*range(40, 40 + LENGTH), *range(90, 95)]


def canvases(*endings: int) -> list[list[int]]:
    """Return the canvases of an answer, and behind its end what nobody sees."""
    ids = [*ANSWER, *endings, *[99] * LENGTH]
    return [ids[:LENGTH], ids[LENGTH : 2 * LENGTH]]


def test_an_answer_is_written_by_vllm_and_scored_as_a_given_text(server: CanvasServer) -> None:
    llm = LLM(server.address)
    server.writes = canvases(TURN_END)
    [answer] = llm.generate("12+7=", SamplingParams(max_tokens=60))
    [output] = answer.outputs
    assert output.token_ids == (*ANSWER, TURN_END)
    assert (output.finish_reason, answer.seed, answer.usage.nfe) == ("stop", None, 3)
    writing = [body for body in server.asked if "vllm_xargs" not in body]
    prompt = writing[0]["prompt"]
    assert [body["prompt"] for body in writing] == [prompt, [*prompt, *ANSWER[:LENGTH]]]
    assert {body["temperature"] for body in writing} == {1}
    [scored] = llm.score("12+7=", ANSWER, finished=True)
    expected = [token.logprob for token in scored.outputs[0].tokens]
    np.testing.assert_allclose([token.logprob for token in output.tokens][:-1], expected, atol=1e-5)
    assert output.score.value == pytest.approx(scored.outputs[0].score.value, abs=1e-5)


def test_an_answer_that_does_not_end_is_cut_where_it_was_told_to(server: CanvasServer) -> None:
    server.writes = canvases()
    [answer] = LLM(server.address).generate("12+7=", SamplingParams(max_tokens=35))
    [output] = answer.outputs
    assert (output.token_ids, output.finish_reason) == (tuple(ANSWER[:35]), "length")


def test_answers_differ_without_a_temperature_and_are_ranked(server: CanvasServer) -> None:
    server.writes = [[40 + number, TURN_END, *[0] * LENGTH] for number in range(3)]
    [answer] = LLM(server.address).generate("12+7=", SamplingParams(max_tokens=20, n=3))
    assert sorted(output.token_ids[0] for output in answer.outputs) == [40, 41, 42]
    scores = [output.score.value for output in answer.outputs]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("options", [
    {"temperature": 0.5}, {"temperature": 0}, {"top_p": 0.9}, {"top_k": 3}, {"seed": 1},
    {"steps": 3}, {"tokens_per_step": 4}, {"unmasking": "random"}, {"length": "cal"},
    {"reviser": "hedged"}, {"logit_bias": {5: 1.0}}, {"forbidden_token_ids": [5]},
    {"cfg_scale": 1.0}, {"constraint": "json"}, {"cache": "none"},
])  # fmt: skip
def test_an_option_of_how_to_write_is_refused_by_name_before_any_request(
    server: CanvasServer, options: dict[str, Any]
) -> None:
    llm = LLM(server.address)
    [name] = options
    with pytest.raises(InputError, match=f"^{name}=.*writes by its own sampler") as caught:
        llm.generate("12+7=", SamplingParams(max_tokens=20, **options))
    assert (caught.value.parameter, server.asked) == (name, [])


def test_options_that_such_a_sampler_heeds_are_taken(server: CanvasServer) -> None:
    server.writes = canvases(TURN_END)
    params = SamplingParams(
        max_tokens=60, temperature=1, length="until-end", stop=["zz"], scorer="dise", logprobs=2
    )
    [answer] = LLM(server.address).generate("12+7=", params)
    assert len(answer.outputs[0].tokens[0].top_logprobs) == 2


def test_a_calibration_tells_how_likely_a_served_answer_is_right(server: CanvasServer) -> None:
    predictor = LLM(server.address).predictor
    calibration = calibrations.made(
        model=server.address, fingerprint=fingerprint(predictor), threshold=None
    )
    server.writes = canvases(TURN_END)
    params = SamplingParams(max_tokens=60, selector="response")
    [answer] = LLM(server.address, calibration=calibration).generate("12+7=", params)
    [output] = answer.outputs
    assert output.probability == calibration.probability(output.score.value)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("score --prompt 12+7= --response 19", "19"),
        ("rank --prompt 12+7= 19 20", "20"),
        ("generate 12+7= --max-tokens 60", "FGHIJ"),
    ],
)
def test_the_command_needs_the_address_and_no_more(
    dise: Dise, server: CanvasServer, monkeypatch: pytest.MonkeyPatch, line: str, expected: str
) -> None:
    monkeypatch.setenv(http.KEY_VARIABLE, "sesame")
    server.writes = canvases(TURN_END)
    run = dise(*line.split(), "--model", server.address)
    assert (run.code, run.err) == (0, "")
    assert expected in run.out
    assert {*server.keys} == {"Bearer sesame"}


def test_the_openai_client_gets_scores_through_the_proxy(
    server: CanvasServer, capsys: pytest.CaptureFixture[str]
) -> None:
    example = (ROOT / "examples" / "vllm_proxy.py").read_text()
    server.writes = [[40 + number, TURN_END, *[0] * LENGTH] for number in range(3)]
    with serving_llm(AsyncLLM(server.address)) as proxy:
        exec(example.replace("http://127.0.0.1:8001", proxy), {})
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 3
        assert all(-100 < float(line.split()[0]) < 0 for line in lines)
        with (
            openai.OpenAI(base_url=f"{proxy}/v1", api_key="none", max_retries=0) as client,
            pytest.raises(openai.BadRequestError, match=r"temperature=0\.7.*own sampler"),
        ):
            client.completions.create(model=server.address, prompt="1", temperature=0.7)


def test_what_a_server_reads_in_canvases_is_not_read_inside_vllm(folder: Path) -> None:
    with pytest.raises(InputError, match="start `vllm serve` and give its address as the model"):
        LLM(str(folder), engine="vllm")


def test_the_check_on_a_gpu_compares_a_server_with_transformers(
    server: CanvasServer,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.writes = [[40 + number, TURN_END, *[0] * LENGTH] for number in range(4)]
    server.max_model_len = 1000
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    script, address = str(ROOT / "benchmarks" / "gpu_check.py"), f"{server.address}#{folder}"
    monkeypatch.setattr(sys, "argv", [script, "--served", address, "--device", "cpu"])
    runpy.run_path(script, run_name="__main__")
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines()[2:]]
    assert len(rows) == 4
    assert all(float(cells[4]) < 1e-4 and cells[5] == cells[6] for cells in rows)
