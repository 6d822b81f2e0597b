"""Block diffusion at every door: the embedded model and a random Qwen3 in blocks of 32, through the
kit, the command, an experiment, the server and the harness.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from dise_adapters.embedded import CountdownBlocksPredictor
from dise_core import AsyncLLM, BlockCausal, SamplingParams, ScoringParams
from dise_core.llm import LLM
from dise_core.testing import check_mask_predictor
from tests import reference_a2d
from tests.app.conftest import Run
from tests.app.serving import serving

Dise = Callable[..., Run]

FOLDER = CountdownBlocksPredictor.folder()
PROBLEM = "83,18,75 -> 10"


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a random Tiny-A2D checkpoint whose name says bd3lm, with the embedded tokenizer."""
    folder = tmp_path_factory.mktemp("models") / "random-qwen3-bd3lm"
    ids = {name: json.loads((FOLDER / "config.json").read_text())[name]
           for name in ("vocab_size", "mask_token_id", "eos_token_id", "pad_token_id")}  # fmt: skip
    reference_a2d.write_checkpoint(folder, reference_a2d.default_config(**ids, _name_or_path=""))
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(FOLDER / name, folder)
    return str(folder)


@pytest.fixture(params=["countdown-blocks", "qwen3"])
def model(request: pytest.FixtureRequest, qwen3: str) -> str:
    return qwen3 if request.param == "qwen3" else request.param


def test_the_predictor_conforms(model: str) -> None:
    predictor = LLM(model).predictor
    assert predictor.info.attention == BlockCausal(8 if model == "countdown-blocks" else 32)
    assert predictor.abilities == {"two-stream", "shadow"}
    check_mask_predictor(predictor)


@pytest.mark.parametrize("scorer", ["dise", "shadow", "interleaved", "mc"])
def test_the_command_writes_and_scores(dise: Dise, model: str, scorer: str) -> None:
    run = dise("generate", PROBLEM, "--model", model, "--max-tokens", 40, "--scorer", scorer,
               "--selector", "response", "--json")  # fmt: skip
    assert run.code == 0, run.err
    answer = json.loads(run.out)
    again = dise("score", "--prompt", PROBLEM, "--response", "75+18-83=10", "--model", model,
                 "--scorer", scorer, "--selector", "response-text", "--json")  # fmt: skip
    assert again.code == 0, again.err
    assert json.loads(again.out)["outputs"][0]["score"]["value"] < 0
    assert answer["cache"] == "exact"
    assert not answer["is_approximate"]


def test_an_experiment_compares_its_scores(dise: Dise, model: str, tmp_path: Path) -> None:
    scores = ("dise:first-blocks-1", "dise:response", "shadow:response", "mc:response")
    run = dise(
        "eval", "uncertainty", "--model", model, "--dataset", "countdown-short", "--limit", 4,
        "--max-tokens", 40, "--temperature", 1.0, "--output", tmp_path,
        *(part for score in scores for part in ("--score", score)),
    )  # fmt: skip
    assert run.code == 0, run.err
    results = json.loads((tmp_path / "results.json").read_text())
    assert set(results["figures"]) == set(scores)
    assert [results["figures"][score]["nfe"] for score in scores[:3]] == [1, 1, 1]


def test_the_server_streams_each_finished_block_with_its_score(model: str) -> None:
    asked = {"messages": [{"role": "user", "content": PROBLEM}], "max_tokens": 40, "seed": 1,
             "dise": {"selector": "response"}}  # fmt: skip
    with serving(AsyncLLM(model)) as url:
        answer = httpx.post(f"{url}/v1/chat/completions", json=asked, timeout=60).json()
        streamed = httpx.post(
            f"{url}/v1/chat/completions",
            json={**asked, "stream": True, "dise": {"stream": "canvas", "selector": "response"}},
            timeout=60,
        ).text
        score = httpx.post(f"{url}/v1/score", json={"prompt": PROBLEM, "response": "75+18-83=10"})
        assert score.status_code == 200, score.text
    events = [json.loads(line[6:]) for line in streamed.splitlines() if line.startswith("data: {")]
    told = [
        (token["position"], token["logprob"])
        for event in events
        for token in event.get("dise", {}).get("canvas", {}).get("scored", [])
    ]
    tokens = answer["choices"][0]["dise"]["tokens"]
    known = dict(told)
    assert len(known) >= len(tokens) - LLM(model).predictor.info.block_length
    for position, logprob in known.items():
        if position < len(tokens):
            assert tokens[position]["logprob"] == pytest.approx(logprob, abs=1e-4)


def test_the_harness_asks_it(model: str) -> None:
    pytest.importorskip("lm_eval")
    from lm_eval.api.instance import Instance

    from dise_app.harness.model import DiseLM

    def asked(kind: str, *arguments: object) -> list[Instance]:
        return [Instance(request_type=kind, doc={}, arguments=arguments, idx=0)]  # type: ignore[arg-type]

    judged = DiseLM(model, scorer="dise", selector="response")
    prompt = judged.apply_chat_template([{"role": "user", "content": PROBLEM}])
    [text] = judged.generate_until(
        asked("generate_until", prompt, {"max_gen_toks": 40}), disable_tqdm=True
    )
    [expected] = LLM(model).generate(prompt, SamplingParams(max_tokens=40), chat=False)
    assert text == expected.outputs[0].text
    answer = "75+18-83=10"
    [(value, _)] = judged.loglikelihood(asked("loglikelihood", prompt, answer), disable_tqdm=True)
    params = ScoringParams(selector="response")
    [ranked] = LLM(model).rank(prompt, [answer], params, chat=False).outputs
    assert value == pytest.approx(ranked.score.rank_value, rel=1e-5)
