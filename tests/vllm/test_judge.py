"""The judge on vLLM, in process and on a stock server, against transformers."""

from pathlib import Path

import pytest

pytest.importorskip("vllm")

from dise_core import LLM, InputError, ScoringParams
from tests.tiny_causal import checkpoint, llama
from tests.vllm.conftest import BATCH, KEPT
from tests.vllm.serving import server

PARAMS = ScoringParams(scorer="ar-perplexity")
TEXTS = [([1, 2, 3], [4, 5, 6, 7]), ([9], [8]), ([3, 1, 4] * 9, [5] * 12)]
TOLERANCE = 1e-4

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = {"hidden_size": 64, "intermediate_size": 96, "max_position_embeddings": 128}
    return Path(checkpoint(tmp_path_factory.mktemp("judge"), llama(**sizes)))


def perplexities(model: str, **options: object) -> list[float]:
    llm = LLM(model, **options)  # type: ignore[arg-type]
    if options:
        KEPT.append(llm)
    prompts, responses = zip(*TEXTS, strict=True)
    return [
        answer.outputs[0].score.value
        for answer in llm.score(list(prompts), list(responses), PARAMS)
    ]


def test_in_process(folder: Path) -> None:
    ours = perplexities(str(folder), engine="vllm", max_batch_tokens=BATCH)
    assert ours == pytest.approx(perplexities(str(folder)), abs=TOLERANCE)
    with pytest.raises(InputError, match="log-probabilities of a text's own tokens"):
        KEPT[-1].score([[1, 2]], [[3]], PARAMS.model_copy(update={"logprobs": 2}))


def test_on_a_stock_server(folder: Path, tmp_path: Path) -> None:
    with server(folder, tmp_path / "log") as started:
        assert perplexities(started.address) == pytest.approx(
            perplexities(str(folder)), abs=TOLERANCE
        )
