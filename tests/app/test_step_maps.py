"""Step maps of answers over HTTP, against the library's own record."""

import httpx
import pytest

from dise_core import LLM, AsyncLLM, SamplingParams
from dise_core.testing import ToyPredictor
from tests.app.serving import events_of, serving

BODY = {"prompt": [1, 2, 3], "max_tokens": 9, "n": 2, "temperature": 0.8, "seed": 4}


@pytest.mark.parametrize("suffix", [[], [4, 5]])
def test_each_token_has_its_step_and_log_probability_if_asked(suffix: list[int]) -> None:
    params = SamplingParams(max_tokens=9, n=2, temperature=0.8, seed=4)
    llm = LLM(ToyPredictor())
    made = llm.fill([1, 2, 3], suffix, params) if suffix else llm.generate([1, 2, 3], params)
    body = BODY | ({"suffix": suffix} if suffix else {})
    with serving(AsyncLLM(ToyPredictor())) as url, httpx.Client(base_url=url) as client:
        plain = client.post("/v1/completions", json=body).json()
        asked = body | {"return_step_maps": True}
        choices = client.post("/v1/completions", json=asked).json()["choices"]
        stream = client.post("/v1/completions", json=asked | {"stream": True}).text
        echoed = client.post("/v1/completions", json={"echo": True, **asked})
    assert not any("meta_info" in choice for choice in plain["choices"])
    for choice, output in zip(choices, made[0].outputs, strict=True):
        assert output.writing is not None
        info = choice["meta_info"]
        assert info["output_ids"] == list(output.token_ids)
        assert info["step_maps"] == (output.writing.steps[3:12] + 1).tolist()
        assert info["written"] == pytest.approx(output.writing.logprobs[3:12].tolist())
        assert len(set(info["step_maps"])) > 1
    choices_sent = [choice for event in events_of(stream) for choice in event["choices"]]
    told = [choice["meta_info"] for choice in choices_sent if "meta_info" in choice]
    assert told == [choice["meta_info"] for choice in choices]
    assert echoed.status_code == 400
    assert "no step map" in echoed.text
