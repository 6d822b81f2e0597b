"""What the embedded model writes in each mode, and each scorer's scores, are those on record.

A regression record: it says that answers stay as they were; that they are right, other tests say.
golden.jsonl holds them, each with its mode: the token ids and the score of each answer to the first
drawn problems, and each scorer's scores of the greedy ones. The tokens are the same on processors
that round differently (ATEN_CPU_CAPABILITY default, avx2 and avx512). Where a change of answers is
meant, `python -m tests.app.test_golden` writes the file anew.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dise_core import LLM, SamplingParams, ScoringParams
from dise_eval.datasets import questions
from tests.jsonlines import records_of, written

GOLDEN = Path(__file__).with_name("golden.jsonl")
NUM_PROBLEMS, TOLERANCE = 8, 1e-4

WRITING: dict[str, dict[str, Any]] = {
    "greedy": {},
    "temperature 0.7": {"temperature": 0.7},
    "temperature 0.7, top-p 0.9, top-k 5": {"temperature": 0.7, "top_p": 0.9, "top_k": 5},
    "Dream's sampler": {
        "unmasking": "entropy", "steps": 24, "temperature": 0.2, "top_p": 0.95,
        "unmasking_settings": {"eps": 1e-3, "tempered_confidence": True}, "block_length": 48,
    },
    "guidance": {"cfg_scale": 0.5},
    "cache prefix": {"cache": "prefix"},
    "cache dual": {"cache": "dual"},
    **{
        f"unmasking {name}": {"unmasking": name}
        for name in ("entropy", "margin", "origin", "random", "threshold")
    },
    "dise-flexible": {"length": "dise-flexible", "max_tokens": 32},
    "dise-flexible, cache dual": {"length": "dise-flexible", "max_tokens": 32, "cache": "dual"},
    "daedal": {"length": "daedal", "max_tokens": 32},
    "remask": {"reviser": "remask", "reviser_settings": {"threshold": 0.9}, "tokens_per_step": 4},
    "regex": {"constraint": "regex", "constraint_settings": {"regex": "[0-9+*/=<>a-z,-]{1,40}"}},
    "best of 5": {"temperature": 0.7, "n": 5},
}  # fmt: skip

SCORING: dict[str, dict[str, Any]] = {
    "dise": {},
    "dise over all": {"selector": "full"},
    "dise over the first block and the prompt's end": {"selector": "first-blocks-1+prompt-last-2"},
    "interleaved": {"scorer": "interleaved"},
    "shadow": {"scorer": "shadow"},
    "mc": {"scorer": "mc", "scorer_settings": {"num_samples": 8}},
    **{
        f"mc, {name}": {"scorer": "mc", "scorer_settings": {"num_samples": 8, "estimator": name}}
        for name in ("llada", "dream")
    },
}


@cache
def model() -> tuple[LLM, list[str]]:
    problems = questions.load("countdown-short", limit=NUM_PROBLEMS)
    return LLM("countdown"), [item.prompt for item in problems.items]


@cache
def golden() -> dict[str, Any]:
    return {record["mode"]: record for record in records_of(GOLDEN)}


def answers(mode: str) -> dict[str, Any]:
    """The token ids of all answers in a mode, in the order in which they were drawn, and scores."""
    llm, prompts = model()
    params = {"max_tokens": 48, "block_length": 16, "seed": 0, **WRITING[mode]}
    outputs = [
        output
        for answer in llm.generate(prompts, SamplingParams(**params))
        for output in sorted(answer.outputs, key=lambda output: output.index)
    ]
    ids = [list(map(int, output.token_ids)) for output in outputs]
    return {"mode": mode, "ids": ids, "scores": [output.score.value for output in outputs]}


def scores(name: str) -> dict[str, Any]:
    """The scores of the greedy answers on record."""
    llm, prompts = model()
    params = ScoringParams(block_length=16, **SCORING[name])
    scored = llm.score(prompts, golden()["greedy"]["ids"], params)
    return {"mode": f"score {name}", "scores": [one.outputs[0].score.value for one in scored]}


@pytest.mark.parametrize("mode", WRITING)
def test_a_mode_writes_the_tokens_on_record(mode: str) -> None:
    found, known = answers(mode), golden()[mode]
    assert found["ids"] == known["ids"]
    np.testing.assert_allclose(found["scores"], known["scores"], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", SCORING)
def test_a_scorer_gives_the_scores_on_record(name: str) -> None:
    found = scores(name)
    known = golden()[found["mode"]]["scores"]
    np.testing.assert_allclose(found["scores"], known, rtol=0, atol=TOLERANCE)


def test_the_modes_differ() -> None:
    """Else the record would not tell one from another."""
    texts = [json.dumps(golden()[mode]["ids"]) for mode in WRITING]
    assert len(set(texts)) >= len(texts) // 2


if __name__ == "__main__":
    written(GOLDEN, *map(answers, WRITING))
    written(GOLDEN, *records_of(GOLDEN), *map(scores, SCORING))
