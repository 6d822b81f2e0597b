"""Calls with whatever Python has to offer: a result, or one of our errors in one line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dise_core import (
    LLM,
    AsyncLLM,
    Budget,
    DiseError,
    InputError,
    PlanError,
    SamplingParams,
    ScoringParams,
)
from dise_core.params import Params
from dise_core.testing import ToyPredictor
from tests.hostile.bounds import bounded, cases

MODEL = ToyPredictor()
SMALL = SamplingParams(max_tokens=3, logprobs=None)

numbers = st.one_of(
    st.integers(),
    st.sampled_from([10**9, 10**18, 10**30, -1, 0, 2**31, 2**63, 2**64]),
    st.floats(),
    st.sampled_from([1e9, 1e30, 5e-324]),
)
texts = st.one_of(
    st.text(max_size=5), st.sampled_from(["", " ", "\ud800", "\x00", "a" * 2_000_000, "ab"])
)
ids = st.lists(st.integers(-2, 12), max_size=5)
junk = st.one_of(
    st.none(),
    st.booleans(),
    numbers,
    texts,
    ids,
    st.binary(max_size=3),
    st.dictionaries(st.text(max_size=2), st.none(), max_size=2),
    st.sampled_from(
        [object(), print, int, {1, 2}, range(3), np.arange(3), np.zeros((2, 2)), np.array(3)]
    ),
)
messages = st.lists(
    st.one_of(
        st.fixed_dictionaries({"role": texts, "content": texts}),
        st.dictionaries(st.sampled_from(["role", "content", "x"]), junk),
        junk,
    ),
    max_size=3,
)
given_values = st.one_of(texts, ids, junk, st.lists(st.one_of(texts, ids, junk), max_size=3))


def finished(work: Callable[[], object]) -> None:
    """Do the work: it must end well, or with one of our errors."""
    with bounded():
        try:
            work()
        except DiseError as error:
            told, kind = str(error), type(error)
        else:
            told, kind = "", DiseError
    assert kind is not PlanError, told  # which would blame a plan for what was handed over
    assert len(told.splitlines()) <= 1
    assert len(told) < 2000


@cases(1 / 9)
@given(
    st.sampled_from(["generate", "chat", "score", "rank", "stream"]),
    given_values,
    st.one_of(given_values, messages),
    st.one_of(st.none(), st.just(SMALL), st.just(ScoringParams(logprobs=None)), junk),
    st.one_of(st.none(), st.booleans(), junk),
)
def test_a_call_with_anything_ends_well(
    verb: str, first: Any, second: Any, params: Any, chat: Any
) -> None:
    llm = LLM(MODEL)
    params = SMALL if params is None else params
    calls: dict[str, Callable[[], object]] = {
        "generate": lambda: llm.generate(first, params, chat=chat),
        "chat": lambda: llm.chat(second, params),
        "score": lambda: llm.score(first, second, params, chat=chat),
        "rank": lambda: llm.rank(first, second, params, chat=chat),
        "stream": lambda: list(llm.stream(second, params, chat=chat)),
    }
    finished(calls[verb])


SETTINGS = {
    "scorer": st.sampled_from(["dise", "mc", "interleaved", "mc-llada", "mc-dream"]),
    "scorer_settings": st.dictionaries(
        st.sampled_from(["k", "num_samples", "seed", "cfg_scale", "batch_size", "eps"]),
        st.one_of(numbers, junk),
        max_size=2,
    ),
    "selector": st.one_of(
        st.none(),
        texts,
        st.sampled_from(["last-" + "9" * 5000, "full+" * 300_000, "first-0", "response+last-3"]),
    ),
    "length": st.sampled_from(["fixed", "daedal", "dise-flexible"]),
    "length_settings": st.dictionaries(
        st.sampled_from(
            ["expansion_factor", "eos_check_tokens", "max_gen_length", "patience", "mask_size"]
        ),
        numbers,
        max_size=2,
    ),
    "unmasking": st.sampled_from(["low-confidence", "entropy", "origin", "factor", "threshold"]),
    "stop": st.lists(texts, max_size=2),
    "forbidden_token_ids": st.lists(numbers, max_size=3),
    "allowed_token_ids": st.lists(numbers, max_size=3),
    "logit_bias": st.dictionaries(st.one_of(numbers, texts), st.one_of(numbers, texts), max_size=3),
    "cache": st.sampled_from(["none", "prefix", "dual"]),
    **{
        name: st.one_of(numbers, st.integers(1, 8))
        for name in (
            "block_length",
            "tokens_per_step",
            "steps",
            "max_tokens",
            "n",
            "best_of",
            "top_k",
            "logprobs",
            "seed",
        )
    },
    **{
        name: st.one_of(numbers, st.floats(0, 1))
        for name in ("eps", "cfg_scale", "temperature", "top_p", "early_exit")
    },
}


@cases(1 / 9)
@given(st.fixed_dictionaries({}, optional=SETTINGS))
def test_params_of_any_size_end_well(settings: dict[str, Any]) -> None:
    async def ask() -> None:
        async with AsyncLLM(MODEL, budget=Budget(passes=20)) as llm:
            await llm.generate([1, 2, 3], SamplingParams(**{"max_tokens": 4, **settings}))

    finished(lambda: asyncio.run(ask()))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"n": 10**18}, "n=1000000000000000000: Input should be less than or equal to 1024"),
        ({"best_of": 10**18}, "best_of="),
        ({"steps": 10**9}, "steps=1000000000"),
        ({"steps": 1e30, "eps": 0.001}, "steps=1e"),
        ({"stop": ["x" * 1_900_000]}, "at most 1000 characters"),
        ({"selector": "full+" * 300_000}, "at most 1000 characters"),
    ],
)
def test_a_setting_beyond_what_the_algorithm_needs_is_refused(
    settings: dict[str, Any], text: str
) -> None:
    with pytest.raises(InputError, match=text):
        SamplingParams(**settings)


@pytest.mark.parametrize(
    ("length", "settings"),
    [
        ("daedal", {"expansion_factor": 4e8}),
        ("daedal", {"expansion_factor": 1e30}),
        ("daedal", {"eos_check_tokens": 1e9}),
        ("dise-flexible", {"max_iterations": 10**12}),
    ],
)
def test_a_length_beyond_any_model_is_refused(length: str, settings: dict[str, Any]) -> None:
    params = SamplingParams(max_tokens=4, length=length, length_settings=settings)
    [name] = settings
    with (
        bounded(1.0, 0.1),
        pytest.raises(InputError, match=f"length controller '{length}': {name}"),
    ):
        LLM(MODEL).generate([1, 2], params)


def test_interleaved_asks_at_most_once_for_each_token() -> None:
    params = ScoringParams(scorer="interleaved", scorer_settings={"k": 2**20}, selector="response")
    with bounded(1.0, 0.1):
        [answer] = LLM(MODEL).score([1], [2, 3, 4], params)
    assert answer.usage.nfe == 3 + 1
    with pytest.raises(InputError, match="'interleaved': k=1000000000"):
        LLM(MODEL).score(
            [1], [2], ScoringParams(scorer="interleaved", scorer_settings={"k": 10**9})
        )


def test_a_long_prompt_is_refused_before_it_is_tokenized() -> None:
    with bounded(1.0, 0.1), pytest.raises(InputError, match="1900000 characters is longer than"):
        LLM(MODEL).generate("a" * 1_900_000, SMALL)


def test_a_call_beyond_its_budget_ends_and_leaves_others_alone() -> None:
    async def ask() -> list[object]:
        async with AsyncLLM(MODEL, budget=Budget(passes=30)) as llm:
            small = llm.generate([[1, 2]], SMALL)
            many = llm.generate([[1, 2]] * 20, SMALL)
            samples = ScoringParams(scorer="mc", scorer_settings={"num_samples": 10**6})
            long = llm.score([1], [2, 3], samples)
            return await asyncio.gather(small, many, long, return_exceptions=True)

    with bounded():
        good, *bad = asyncio.run(ask())
    assert isinstance(good, list)
    for error in bad:
        assert isinstance(error, InputError)
        assert "more than the 30 forward passes" in str(error)


@pytest.mark.parametrize("cls", [SamplingParams, ScoringParams])
def test_params_raise_our_error(cls: type[Params]) -> None:
    with pytest.raises(InputError, match="there is no setting 'colour'"):
        cls(colour="red")  # type: ignore[call-arg]


@pytest.mark.parametrize("model", [None, 3, b"countdown", object(), ["countdown"]])
def test_a_model_is_a_name_a_folder_or_a_predictor(model: Any) -> None:
    with pytest.raises(InputError, match="a model is a name, a folder or a MaskPredictor"):
        LLM(model)
