"""Scoring a prompt through POST /v1/completions, as OpenAI's clients and lm-evaluation-harness ask
for it, against the model's own distribution at each position.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import openai
import pytest

from dise_core import LLM, AsyncLLM
from tests.app.serving import Serve
from tests.ascii_model import AsciiPredictor

TEXT = "2 + 3 = 5, they say"
MODEL = AsciiPredictor()


def naive(text: str) -> Any:
    """Return log p(. | the whole text) at each position, [N, V]."""
    logits = MODEL.logits(MODEL.tokenizer.encode(text))
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def own(text: str) -> list[float]:
    rows = naive(text)
    return [float(rows[place, ord(letter)]) for place, letter in enumerate(text)]


@pytest.fixture(scope="module")
def url(served: Serve) -> str:
    return served(AsyncLLM(AsciiPredictor()))


def test_a_prompt_alone_is_scored_at_every_position(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="ascii", prompt=[TEXT, "no"], echo=True, max_tokens=0, logprobs=2
    )
    one, other = answer.choices
    assert (one.text, one.finish_reason, one.index, other.index) == (TEXT, "length", 0, 1)
    told = one.logprobs
    assert told is not None
    assert told.tokens == list(TEXT)
    assert told.text_offset == list(range(len(TEXT)))
    assert told.token_logprobs == pytest.approx(own(TEXT), abs=1e-5)
    for row, top in zip(naive(TEXT), told.top_logprobs or [], strict=True):
        likeliest = np.argsort(-row)[:2]
        names = {MODEL.tokenizer.token_text(int(token)): float(row[token]) for token in likeliest}
        assert top == pytest.approx(names, abs=1e-5)
    assert other.logprobs is not None
    assert other.logprobs.token_logprobs == pytest.approx(own("no"), abs=1e-5)
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(TEXT) + 2, 0)
    [expected] = LLM(AsciiPredictor()).score("", "no", finished=False)
    assert other.dise["score"]["value"] == pytest.approx(expected.outputs[0].score.value)  # type: ignore[attr-defined]
    assert answer.dise["nfe"] == 2  # type: ignore[attr-defined]


def test_what_is_written_after_a_prompt_changes_nothing_of_its_scores(
    client: openai.OpenAI,
) -> None:
    asked: Any = {"model": "ascii", "prompt": TEXT, "max_tokens": 3, "logprobs": 0, "seed": 1}
    echoed = client.completions.create(**asked, echo=True).choices[0]
    plain = client.completions.create(**asked).choices[0]
    assert echoed.text == TEXT + plain.text
    assert echoed.logprobs is not None
    assert echoed.logprobs.tokens is not None
    assert len(echoed.logprobs.tokens) == len(TEXT) + 3
    assert echoed.logprobs.token_logprobs is not None
    assert echoed.logprobs.token_logprobs[: len(TEXT)] == pytest.approx(own(TEXT), abs=1e-5)
    assert echoed.dise["score"] == plain.dise["score"]  # type: ignore[attr-defined]
    assert echoed.logprobs.token_logprobs[len(TEXT) :] == pytest.approx(
        [token["logprob"] for token in plain.dise["tokens"]],  # type: ignore[attr-defined]
        abs=1e-5,
    )


def test_lm_evals_local_completions_scores_continuations(url: str) -> None:
    """Its likelihood is the sum over the continuation; its greedy flag compares the numbers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = pytest.importorskip("lm_eval.models.openai_completions")
        instances = pytest.importorskip("lm_eval.api.instance")
        lm = models.LocalCompletionsAPI(
            base_url=f"{url}/v1/completions", model="ascii", tokenizer_backend="remote"
        )
        likeliest = [chr(int(token)) for token in naive(TEXT).argmax(axis=1) if token < 128]
        pairs = [("2 + 3 =", " 5, they say"), ("a", likeliest[0])]
        asked = [
            instances.Instance("loglikelihood", {}, pair, index) for index, pair in enumerate(pairs)
        ]
        told = lm.loglikelihood(asked, disable_tqdm=True)
    for (context, continuation), (value, is_greedy) in zip(pairs, told, strict=True):
        whole, start = context + continuation, len(context)
        assert value == pytest.approx(sum(own(whole)[start:]), abs=1e-4)
        best = naive(whole)[start:].argmax(axis=1)
        assert is_greedy == (best.tolist() == [ord(letter) for letter in continuation])
