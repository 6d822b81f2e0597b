"""`dise score` of given texts by an SGLang server, which reads them as prompts."""

import json
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from typing import Any

import pytest

from dise_adapters.embedded import CountdownBlocksPredictor, CountdownPredictor
from dise_core import LLM, InputError, ModelError, SamplingParams
from tests import servers
from tests.commands import Dise
from tests.servers import address, serving
from tests.sglang.served import Runner, Served

MODEL = "countdown-blocks"


class Server(ThreadingHTTPServer):
    """Answers POST /generate by SGLang's own loop and scheduler."""

    def __init__(self, fdfo: bool) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.llm, self.fdfo, self.has_plugin = LLM(MODEL), fdfo, True
        self.folder = str(CountdownBlocksPredictor.folder())
        self.asked: list[Any] = []


class Handler(servers.Handler):
    server: Server

    def do_GET(self) -> None:
        card = {"id": MODEL, "owned_by": "sglang", "root": self.server.folder}
        self.send(200, json.dumps({"data": [card]}).encode())

    def do_POST(self) -> None:
        body = self.body()
        self.server.asked.append(body)
        served = Served(Runner(self.server.llm.predictor, {}), "LowConfidence", {}, MODEL)
        prompts, params = body["input_ids"], body["sampling_params"]
        most = [params["max_new_tokens"]] * len(prompts)
        custom = params["custom_params"] if self.server.has_plugin else None
        _, told = served.write(prompts, most, 3, self.server.fdfo, custom=custom)
        facts = [told[n] if self.server.has_plugin else {} for n in range(len(prompts))]
        infos = [{"text": "", "meta_info": fact} for fact in facts]
        self.send(200, json.dumps(infos).encode())


@pytest.fixture(params=[False, True], ids=["sync", "fdfo"])
def server(request: pytest.FixtureRequest, version: str) -> Iterator[Server]:
    with serving(Server(request.param)) as server:
        yield server


TEXTS = [("83,18,75 -> 10", "75+18-83=10"), ("8,3,5 -> 10", "5+8-3=10"), ("1,1,1 -> 9", "1+1")]


def test_given_texts_have_the_scores_that_the_model_itself_gives(
    server: Server, dise: Dise
) -> None:
    prompts, responses = map(list, zip(*TEXTS, strict=True))
    theirs, ours = (llm.score(prompts, responses) for llm in (LLM(address(server)), LLM(MODEL)))
    for answer, expected in zip(theirs, ours, strict=True):
        [one], [other] = answer.outputs, expected.outputs
        assert one.score.value == pytest.approx(other.score.value, abs=1e-5)
        for token, same in zip(one.tokens, other.tokens, strict=True):
            assert token.logprob == pytest.approx(same.logprob, abs=1e-5)
    shown = dise("score", "--model", address(server), "--prompt", TEXTS[0][0],
                 "--response", TEXTS[0][1], "--json")  # fmt: skip
    [output] = json.loads(shown.out)["outputs"]
    assert output["score"]["value"] == pytest.approx(ours[0].outputs[0].score.value, abs=1e-5)
    keys = [body["extra_key"] for body in server.asked]
    assert len({*keys}) == len(keys)


def test_what_sglang_does_not_tell_is_refused_by_a_sentence(server: Server) -> None:
    llm = LLM(address(server))
    with pytest.raises(InputError, match="tells of a finished text's own tokens alone"):
        llm.generate("8,3,5 -> 10", SamplingParams(max_tokens=8))
    server.folder = str(CountdownPredictor.folder())
    with pytest.raises(InputError, match="does not attend in blocks, of which it tells nothing"):
        LLM(address(server))
    server.has_plugin = False
    with pytest.raises(ModelError, match="install dise where it runs"):
        llm.score("8,3,5 -> 10", "5+8-3=10")
