"""One bad request among several: the others are answered, in both entry points."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest

from dise_core import LLM, AsyncLLM, InputError, RequestOutput, SamplingParams, ScoringParams
from dise_core.errors import TooLongError
from dise_core.testing import ToyPredictor
from dise_core.testing.toy_model import MASK

PARAMS = SamplingParams(max_tokens=4, block_length=4)
PROMPTS = ["abc", "hello", [1, MASK], "j" * 38, "de"]


def told(answers: Sequence[RequestOutput]) -> list[object]:
    return [
        type(answer.error) if answer.error else answer.outputs[0].token_ids for answer in answers
    ]


def expected() -> list[object]:
    llm = LLM(ToyPredictor())
    good = [llm.generate(prompt, PARAMS)[0].outputs[0].token_ids for prompt in ("abc", "de")]
    return [good[0], InputError, InputError, TooLongError, good[1]]


def test_each_prompt_has_its_own_outcome() -> None:
    answers = LLM(ToyPredictor()).generate(PROMPTS, PARAMS, on_error="return")
    assert told(answers) == expected()
    bad = answers[1]
    assert (bad.prompt, bad.outputs, bad.model) == ("hello", (), "toy")
    record = json.loads(json.dumps(bad.to_dict()))
    assert record["error"]["type"] == "InputError"
    assert record["error"]["message"] == str(bad.error) != ""
    assert "error" not in answers[0].to_dict()


def test_scores_and_conversations_have_outcomes_too() -> None:
    llm = LLM(ToyPredictor())
    scored = llm.score(["a", "b"], ["c", "x"], ScoringParams(), on_error="return")
    assert [answer.error is None for answer in scored] == [True, False]
    chats = llm.chat([[{"role": "user", "content": "a"}]] * 2, PARAMS, on_error="return")
    assert [type(answer.error) for answer in chats] == [InputError, InputError]


def test_the_async_entry_point_does_the_same() -> None:
    async def run() -> list[RequestOutput]:
        async with AsyncLLM(ToyPredictor()) as llm:
            with pytest.raises(InputError):
                await llm.generate(PROMPTS, PARAMS)
            return await llm.generate(PROMPTS, PARAMS, on_error="return")

    assert told(asyncio.run(run())) == expected()
