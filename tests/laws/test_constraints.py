"""What is promised of answers under a constraint: each is a whole valid text, whatever the weights,
the schema, the policy and the lengths, and a constraint that all texts meet changes nothing.
"""

from __future__ import annotations

import json
import os
import random
import re
from functools import cache
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from jsonschema import Draft202012Validator

from dise_core import LLM, InputError, SamplingParams
from dise_core.arrays import Ids
from dise_core.plugins.discovery import installed_catalog
from dise_core.testing.toy_model import Logits
from tests import ascii_model, byte_checkpoints
from tests.ascii_model import AsciiPredictor
from tests.byte_checkpoints import END, LONGER, SIZE
from tests.strategies.constraints.schemas import schemas

NUM_CASES = int(os.environ.get("DISE_CONSTRAINT_CASES", "30"))
"""Random schemas for each family."""

TOGETHER = 40
"""Requests that are written at the same time."""

MOST = 200
"""Tokens that the shortest answer under a schema may need."""

TOO_SLOW = "s to prepare"
"""What the refusal of a schema says that a busy machine does not build in time."""

MODELS = ("llada", "dream", "SDAR-b4", "SDAR-b16")

POLICIES = [
    name
    for name, entry in sorted(installed_catalog().unmasking_policies.items())
    if not entry.load().edits
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function that loads a model by its name, which tells its blocks."""
    root = tmp_path_factory.mktemp("models")

    @cache
    def loaded(name: str) -> LLM:
        family = "sdar" if name.startswith("SDAR") else name
        return LLM(byte_checkpoints.write(family, root / name), max_num_seqs=TOGETHER)

    return loaded


def random_schemas(count: int) -> list[Any]:
    """Return different schemas, the same in each run."""
    found: list[Any] = []

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(schemas())
    def keep(schema: Any) -> None:
        found.append(schema)

    keep()
    return found


def under(schema: Any, **more: Any) -> SamplingParams:
    given_schema = {"constraint": "json-schema", "constraint_settings": {"schema": schema}}
    return SamplingParams(**({"logprobs": None} | given_schema | more))


def matching(expression: str, **more: Any) -> SamplingParams:
    given_expression = {"constraint": "regex", "constraint_settings": {"regex": expression}}
    return SamplingParams(
        **({"max_tokens": 24, "logprobs": None, "seed": 3} | given_expression | more)
    )


def least_tokens(llm: LLM, schema: Any) -> int | None:
    """Return the fewest tokens of an answer; None for more than MOST and for a schema that is too
    large.
    """
    try:
        constraint = llm.planner.prepared(under(schema, max_tokens=MOST)).constraint
    except InputError:
        return None
    assert constraint is not None
    return constraint.tokens.least


def case(schema: Any, least: int, rng: random.Random, is_block_causal: bool) -> SamplingParams:
    """Return a request with settings of all kinds."""
    blocks = {} if is_block_causal else {"block_length": rng.randint(4, 32)}
    return under(
        schema,
        max_tokens=least + rng.choice([0, 1, 7, 40]),
        tokens_per_step=rng.choice([1, 4, 16]),
        temperature=rng.choice([0.0, 1.0]),
        unmasking=rng.choice(POLICIES),
        seed=rng.randrange(2**32),
        **blocks,
    )


def assert_valid(llm: LLM, every: list[Any], is_block_causal: bool) -> int:
    """Assert that answers under these schemas are valid and whole; return how many there are."""
    rng, written = random.Random(llm.predictor.info.vocab_size), 0
    for start in range(0, len(every), TOGETHER):
        cases = [
            case(schema, least, rng, is_block_causal)
            for schema in every[start : start + TOGETHER]
            if (least := least_tokens(llm, schema)) is not None
        ]
        plans = (llm.planner.generate([1, 2, 3], params) for params in cases)
        for outcome in llm.run(plans):
            if TOO_SLOW in str(outcome.error):
                continue
            params, [output] = cases[outcome.index], outcome.unwrap().outputs
            schema = params.constraint_settings["schema"]
            Draft202012Validator(schema).validate(json.loads(output.text))
            assert output.finish_reason == "stop"
            assert len(output.token_ids) <= params.max_tokens
            written += 1
    return written


@pytest.mark.parametrize("name", MODELS)
def test_every_answer_is_valid_and_whole(models: Any, name: str) -> None:
    every = random_schemas(NUM_CASES)
    written = assert_valid(models(name), every, name.startswith("SDAR"))
    assert written > 0.8 * len(every)
    print(f"{name}: {written} of {len(every)} schemas answered, all valid")


def test_what_was_possible_stays_possible_whatever_the_model_then_ranks(
    models: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidates_are(1, monkeypatch)
    assert assert_valid(models("dream"), random_schemas(NUM_CASES), is_block_causal=False)


def candidates_are(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("block", "constrained"):
        monkeypatch.setattr(f"dise_core.constraints.{module}.NUM_CANDIDATES", number)


ANYTHING = "(?s).*"
"""All texts without NUL."""

DIGIT, TRUE = 16, 256 + LONGER.index("true")
"""Token ids."""


class Talker(AsciiPredictor):
    """A model of all of ASCII that neither ends nor writes NUL."""

    def logits(self, ids: Ids) -> Logits:
        logits = super().logits(ids)
        logits[:, [0, ascii_model.END, ascii_model.MASK]] -= 60.0
        return logits


def is_text(data: bytes | None) -> bool:
    """Whether a token is a text whatever stands beside it."""
    return data is not None and b"\0" not in data and "\ufffd" not in data.decode(errors="replace")


PROMPTS = [[1, 2, 3, 4], [9, 8, 7, 6]]
"""So long that answers end with a block of 4: beyond an answer a constraint writes nothing."""


def assert_unchanged(llm: LLM, monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:
    """Assert that a constraint that all texts meet changes no token."""
    candidates_are(SIZE, monkeypatch)
    settings = {"tempered_confidence": False, **more.pop("unmasking_settings", {})}
    params = matching(ANYTHING, unmasking_settings=settings, **more)
    free = params.model_copy(update={"constraint": None, "constraint_settings": {}})
    for one, other in zip(llm.generate(PROMPTS, params), llm.generate(PROMPTS, free), strict=True):
        assert one.outputs[0].token_ids == other.outputs[0].token_ids


@pytest.mark.parametrize(
    "more",
    [
        *({"unmasking": policy} for policy in POLICIES),
        {"steps": 8, "unmasking_settings": {"eps": 1e-3}},
        {"logit_bias": {65: 3.0, 66: -2.0}},
        {"unmasking_settings": {"confidence_eos_eot_inf": True}},
    ],
    ids=str,
)
def test_a_constraint_that_all_texts_meet_changes_nothing(
    more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_unchanged(LLM(Talker()), monkeypatch, block_length=8, **more)


@pytest.mark.parametrize("name", MODELS[:3])
def test_nor_does_it_with_any_attention_cache_or_guidance(
    models: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = models(name)
    parts = [i for i in range(END) if not is_text(llm.predictor.tokenizer.token_bytes(i))]
    base = {"forbidden_token_ids": [*parts, END], "length": "fixed"}
    for more in [{"cfg_scale": 1.5}, {"cache": "none"}, {"cache": "prefix"}, {"cache": "dual"}]:
        assert_unchanged(llm, monkeypatch, tokens_per_step=2, **base, **more)


WORDS = "(red|green|greenish|blue)( and (red|green|blue)){0,3}"
ASCII = LLM(AsciiPredictor())

IDS = ("logit_bias", "forbidden_token_ids")
"""Options about tokens of ASCII."""


@pytest.mark.parametrize(
    "more",
    [
        {"cfg_scale": 2.0},
        {"logit_bias": {ord("g"): 20.0, ord("r"): -20.0, 128: 9.0}},
        {"forbidden_token_ids": [ord("g")]},
        {"unmasking_settings": {"logits_eos_inf": True}},
        {"best_of": 4, "n": 4, "temperature": 1.0},
        {"top_k": 2, "temperature": 2.0},
        {"top_p": 0.01, "temperature": 0.1},
        {"temperature": 1e-3},
        {"unmasking_settings": {"confidence_eos_eot_inf": True}},
        {"steps": 8, "unmasking_settings": {"eps": 1e-3}},
        {"scorer": "mc", "scorer_settings": {"num_samples": 2}},
        *({"reviser": "remask", "reviser_settings": {"accept": "always", "threshold": 1.0} | more}
          for more in ({}, {"rounds": 3, "max_tokens": 3})),
    ],
    ids=str,
)  # fmt: skip
def test_whatever_else_is_asked_answers_are_valid(more: dict[str, Any], models: Any) -> None:
    is_exact = "logits_eos_inf" in more.get("unmasking_settings", {})
    most = more.get("temperature", 1.0)
    for llm in (ASCII, models("SDAR-b4"), models("dream")):
        if llm is not ASCII:
            more = {name: value for name, value in more.items() if name not in IDS}
        for seed, temperature in product(range(3), (0.0, most) if "n" not in more else (most,)):
            params = matching(WORDS, max_tokens=21, seed=seed)
            params = params.model_copy(update=more | {"temperature": temperature})
            for answer in llm.generate(PROMPTS, params):
                for output in answer.outputs:
                    assert re.fullmatch(WORDS, output.text)
                    assert output.finish_reason == "stop"
                    assert not is_exact or len(output.token_ids) == 21
                    assert not set(more.get("forbidden_token_ids", ())) & set(output.token_ids)


def test_alone_equals_batched_and_a_seed_draws_again() -> None:
    base = {"temperature": 1.0, "tokens_per_step": 2, "block_length": 8}
    many = [matching("[a-z]+( [a-z]+)*", **base | {"seed": seed}) for seed in range(12)]
    alone = [ASCII.generate(PROMPTS[0], params)[0].outputs[0] for params in many]
    batched = [answer.outputs[0] for answer in ASCII.generate([PROMPTS[0]] * 12, many)]
    assert [one.token_ids for one in alone] == [one.token_ids for one in batched]
    assert len({one.text for one in alone}) > 4
