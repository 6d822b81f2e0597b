"""Revisers beside everything else that a request may ask for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dise_core import LLM, BlockCausal, SamplingParams, ScoringParams
from dise_core.testing import ToyPredictor
from dise_core.testing.toy_model import END
from tests.streamed import parted

DOUBTING = {"reviser": "remask", "reviser_settings": {"threshold": 0.7}}

FULL = [
    {"length": "fixed"},
    {"length": "dise-flexible", "length_settings": {"max_iterations": 3, "mask_size": 3}},
    {
        "length": "daedal",
        "length_settings": {"max_gen_length": 14, "expansion_factor": 2},
        "temperature": 2.0,
    },
]

SCORED = {"reviser_settings": {"threshold": 0.7, "accept": "score"}, "logprobs": 1}

REQUESTS: list[tuple[bool, dict[str, Any]]] = [
    *((False, more) for more in FULL),
    (False, {"cache": "prefix"}),
    (False, {"cache": "dual"}),
    (False, {"unmasking": "threshold", "cfg_scale": 1.0, "temperature": 2.0}),
    (False, {"unmasking_settings": {"eps": 1e-3}}),
    (False, {"n": 3, "best_of": 4, "temperature": 1.0}),
    (False, {"scorer": "interleaved", "logprobs": None}),
    *((True, more) for more in FULL),
    (True, {"length": "until-end"}),
    (True, {"length": "until-end", "cache": "none", "n": 2, "best_of": 3, "temperature": 1.0}),
    (True, {"unmasking": "llada2-editing", "length": "fixed"}),
    *((blocks, SCORED) for blocks in (False, True)),
]


def model(is_blocks: bool) -> LLM:
    return LLM(ToyPredictor(attention=BlockCausal(4)) if is_blocks else ToyPredictor())


def asked(more: dict[str, Any]) -> SamplingParams:
    return SamplingParams(**{"max_tokens": 10, "tokens_per_step": 4, "seed": 3, **DOUBTING, **more})


@pytest.mark.parametrize(("is_blocks", "more"), REQUESTS, ids=str)
def test_a_revised_answer_is_scored_counted_and_told(is_blocks: bool, more: Any) -> None:
    llm, params = model(is_blocks), asked(more)
    unchanged = {"reviser": None, "best_of": None, "n": params.num_samples}
    [answer], [plain] = (
        llm.generate("abc", request) for request in (params, params.model_copy(update=unchanged))
    )
    by_sample = {output.index: output for output in plain.outputs}
    assert len(answer.outputs) == params.n
    num_changed = 0
    for output in answer.outputs:
        ids = list(by_sample[output.index].token_ids)
        for revision in output.revisions:
            num_changed += revision.num_changed
            assert [ids[token.position] for token in revision.tokens] == [
                token.old for token in revision.tokens
            ]
            if revision.is_accepted:
                ids = applied(ids, revision)
        assert tuple(ids) == output.token_ids
        scoring = ScoringParams(scorer=params.scorer, selector=params.selector)
        again = llm.score("abc", list(output.token_ids), scoring)[0].outputs[0]
        assert again.score.value == pytest.approx(output.score.value, abs=1e-6)
        assert (output.tokens[0].logprob is None) == (params.logprobs is None)
        assert {len(token.top_logprobs) for token in output.tokens} == {params.logprobs or 0}
        assert "revisions" in output.to_dict()
        assert "revisions" not in by_sample[output.index].to_dict()
    assert num_changed, "a test without a changed token tests nothing"
    if params.num_samples == params.n and params.logprobs is not None:
        spent = sum(revision.nfe for output in answer.outputs for revision in output.revisions)
        assert answer.usage.nfe == plain.usage.nfe + spent


def applied(ids: list[int], revision: Any) -> list[int]:
    """The response with the new tokens; it ends before the first that is gone."""
    for token in revision.tokens:
        if token.new is None:
            return ids[: ids.index(END) + 1]
        ids[token.position] = token.new
    return ids


@pytest.mark.parametrize("is_blocks", [False, True])
def test_a_stream_settles_nothing_that_may_be_revised(is_blocks: bool) -> None:
    llm, changed = model(is_blocks), 0
    for seed in range(4):
        params = asked({"temperature": 1.0, "seed": seed, "length": "fixed"})
        shown, answer = parted(llm.stream("abc", params))
        changed += sum(r.is_accepted for r in answer.outputs[0].revisions)
        assert not any(update.settled for update in shown)
        assert sum(update.is_fresh for update in shown) > 1, "the canvas with masks is shown anew"
        [same] = llm.generate("abc", params)
        assert same.outputs[0].token_ids == answer.outputs[0].token_ids
    assert changed, "a test without a change tests nothing"


def test_a_revision_draws_noise_of_its_own_and_repeats_itself() -> None:
    """With every token masked, the noise of the first writing would write the same text."""
    everything = {"threshold": 1.0, "max_tokens": 10, "rounds": 1, "accept": "always"}
    whole = {"tokens_per_step": 1, "block_length": 10, "max_tokens": 10}
    params = asked({"temperature": 1.0, "reviser_settings": everything, **whole})
    [first], [again] = (model(False).generate("abc", params) for _ in range(2))
    [revision] = first.outputs[0].revisions
    assert (len(revision.tokens), revision.is_accepted) == (10, True)
    assert revision.num_changed
    assert first.outputs[0].to_dict() == again.outputs[0].to_dict()


def test_a_revision_in_json() -> None:
    [answer] = model(True).generate("abc", asked({"length": "until-end"}))
    [output] = answer.outputs
    told = json.loads(json.dumps(output.to_dict()))["revisions"]
    assert len(told) == len(output.revisions) > 0
    for record, revision in zip(told, output.revisions, strict=True):
        assert set(record) == {"accepted", "score_before", "score_after", "nfe", "tokens"}
        for token, one in zip(record["tokens"], revision.tokens, strict=True):
            assert token["position"] == one.position
            assert token["old"] == {"id": one.old, "text": one.old_text}
            assert one.old_text == ToyPredictor().tokenizer.token_text(one.old)
            assert (token["new"] is None) == (one.new is None)
