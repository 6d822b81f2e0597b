"""Schemas and expressions of an enemy: each ends soon, in an answer or in an error of its own, and
the engine goes on answering others.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from typing import Any, ClassVar

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dise_app.server.limits import Limits
from dise_core import LLM, AsyncLLM, Constraint, InputError, OverloadedError, SamplingParams
from dise_core.constraints.kept import KEPT
from tests.app.serving import serving
from tests.ascii_model import AsciiPredictor
from tests.guests import with_guests
from tests.hostile.bounds import bounded, cases
from tests.strategies.constraints.schemas import long_constants, many_references, schemas

SHARE = 1 / 50
"""Of all cases: each may take seconds."""

LARGE = st.sampled_from([0, 1, 3, 50, 999, 1000, 1001, 10**6, 2**31, 2**64, 10**400, -1])
ATOMS = st.sampled_from(
    ["a", ".", r"\w", r"\p{L}", "[^a]", r"\d", "é", "(?i:k)", r"\x00", "(?s:.)", "|", "^", "$",
     r"\b", r"\1", "(?=a)", "[[:alpha:]&&[^b]]", "(?:)", "\\", "]", "(", "a*?", "\ud800", "{"]
)  # fmt: skip
COUNTS = st.builds("{{{},{}}}".format, st.integers(0, 60), st.integers(1, 2000)) | st.sampled_from(
    ["*", "+", "?", "*?", "{2}", "{,9}", "{1000}", "{20}", "{99999999999}"]
)

expressions = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds("({}){}".format, inner, COUNTS),
        st.builds("(?:{}|{})*{}(?:a|b)".format, inner, inner, inner),
        st.builds(lambda part, count: part * count, inner, st.integers(2, 300)),
        st.lists(inner, max_size=4).map("".join),
    ),
    max_leaves=8,
)

WORDS = st.sampled_from(["", "a", "$ref", "type", "\0", "\ud800", "x" * 5000, "#/$defs/Node", "#"])
KEYWORDS = st.sampled_from(
    ["type", "properties", "required", "items", "prefixItems", "minItems", "maxItems", "minLength",
     "maxLength", "pattern", "enum", "const", "anyOf", "oneOf", "allOf", "not", "$ref", "$defs",
     "format", "minimum", "maximum", "additionalProperties", "patternProperties", "uniqueItems",
     "if", "then", "dependentSchemas", "multipleOf", "contains"]
)  # fmt: skip
TYPES = st.sampled_from(["object", "array", "string", "integer", "number", "null", "any"])
nonsense = st.recursive(
    st.one_of(st.none(), st.booleans(), LARGE, st.floats(), WORDS, TYPES, expressions),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(KEYWORDS | WORDS, inner, max_size=5),
        st.builds(lambda one, count: [one] * count, inner, st.integers(2, 400)),
    ),
    max_leaves=12,
)


def nested(schema: Any, depth: int, kind: str) -> Any:
    for _ in range(depth):
        schema = {"anyOf": [schema, schema]} if kind == "anyOf" else {
            "type": kind, **({"items": schema, "maxItems": 3} if kind == "array" else
                             {"properties": {"a": schema, "b": schema}})}  # fmt: skip
    return schema


costly = st.one_of(
    st.builds(
        lambda low, high: {"type": "string", "minLength": low, "maxLength": high}, LARGE, LARGE
    ),
    st.builds(lambda low, high: {"type": "integer", "minimum": low, "maximum": high}, LARGE, LARGE),
    st.builds(lambda pattern: {"type": "string", "pattern": pattern}, expressions),
    st.builds(lambda count: {"enum": [f"{i:x}" * 9 for i in range(count)]}, st.integers(1, 5000)),
    st.builds(nested, schemas(), st.integers(1, 12), st.sampled_from(["anyOf", "array", "object"])),
    st.builds(
        lambda inner, count: {"type": "array", "items": inner, "maxItems": count}, schemas(), LARGE
    ),
    st.builds(
        many_references,
        st.integers(1, 1000),
        st.integers(1, 1300),
        st.integers(0, 2000),
        st.sampled_from(["anyOf", "oneOf"]),
    ),
    st.builds(long_constants, st.integers(1, 1000), st.integers(1, 38_000)),
)


def size_of(value: Any, known: dict[int, int]) -> int:
    """Return about the characters of a value as JSON. known: by id, as values are shared."""
    if id(value) not in known:
        parts = [*value, *value.values()] if isinstance(value, dict) else value
        inner = isinstance(value, dict | list) and [size_of(part, known) for part in parts]
        known[id(value)] = 2 + sum(inner) if inner else len(str(value))
    return known[id(value)]


hostile = st.one_of(
    expressions.map(lambda regex: ("regex", {"regex": regex})),
    (nonsense | costly | schemas()).map(lambda schema: ("json-schema", {"schema": schema})),
    st.lists(WORDS | expressions, max_size=2000).map(lambda some: ("choice", {"choices": some})),
).filter(lambda case: size_of(case[1], {}) <= Limits().max_body_bytes)
MODEL = LLM(AsciiPredictor())


def asked(case: tuple[str, Any], **more: Any) -> SamplingParams:
    constraint, given_settings = case
    settings = {"constraint": constraint, "constraint_settings": given_settings, "logprobs": None}
    return SamplingParams(**(settings | {"max_tokens": 40, "tokens_per_step": 8} | more))


@cases(SHARE)
@given(hostile)
def test_a_hostile_constraint_ends_soon_in_an_answer_or_in_an_error(case: tuple[str, Any]) -> None:
    with bounded(2.5, 0.5):
        try:
            [answer] = MODEL.generate([1, 2], asked(case))
        except InputError:
            return
    assert answer.outputs[0].finish_reason == "stop"


GROWING: list[tuple[str, Any]] = [
    ("json-schema", {"schema": schema})
    for schema in (
        many_references(1000, 1300, 2000),
        many_references(1000, 1000, 2000, "anyOf"),
        long_constants(1000, 38_000),
    )
]

SLOW: list[tuple[str, Any]] = [
    ("regex", {"regex": regex})
    for regex in (
        "(a|b)*a(a|b){20}",
        r"\w{1,500}",
        "((a{1,99}){1,99}){1,99}",
        "([a-z]{0,3} ){4000}",
    )
]


@pytest.mark.parametrize("case", GROWING)
def test_a_schema_that_grows_costs_the_process_that_answers_nothing(case: tuple[str, Any]) -> None:
    begun = time.process_time()
    with bounded(30, 0.3), pytest.raises(InputError):
        MODEL.generate([1, 2], asked(case))
    assert time.process_time() - begun < 1


def test_wide_automata_are_kept_within_their_bytes() -> None:
    for index in range(12):
        case = "regex", {"regex": f"[0-9]{{1,{19_000 + index}}}"}
        [answer] = MODEL.generate([1, 2], asked(case, max_tokens=8, block_length=8))
        assert answer.outputs
    assert KEPT.num_bytes < 2**27


class Broken(Constraint):
    """Fails as it is told to, in a child or beside the engine."""

    in_child: ClassVar[bool] = True
    how: str

    def expression(self) -> Any:
        answers = {"none": None, "bytes": b"a", "number": 3}
        if self.how in answers:
            return answers[self.how]
        if self.how == "exit":
            os._exit(0)
        raise {"leave": SystemExit, "interrupt": KeyboardInterrupt, "value": ValueError}[self.how]


class BrokenHere(Broken):
    """The same beside the engine."""

    in_child: ClassVar[bool] = False


BLAMED = "constraint 'broken' of plugin 'guest': "
FAILURES = [
    ("none", 500, f"{BLAMED}TypeError: expression() must return a text, .*, not NoneType: None"),
    ("bytes", 500, f"{BLAMED}TypeError: expression() must return a text, .*, not bytes: b'a'"),
    ("number", 500, f"{BLAMED}TypeError: expression() must return a text, .*, not int: 3"),
    ("leave", 500, f"{BLAMED}SystemExit"),
    ("interrupt", 500, f"{BLAMED}KeyboardInterrupt"),
    ("value", 500, f"{BLAMED}ValueError"),
]


@pytest.mark.parametrize(
    ("broken", "failures"),
    [
        (Broken, [*FAILURES, ("exit", 400, "needs more than 1 GiB of memory or 2 s to prepare")]),
        (BrokenHere, FAILURES),
    ],
)
def test_a_constraint_that_always_fails_says_why_and_not_to_try_again(
    broken: type[Constraint], failures: list[tuple[str, int, str]]
) -> None:
    catalog = with_guests(constraints={"broken": broken})
    with serving(AsyncLLM(AsciiPredictor(), catalog=catalog)) as url:
        for how, status, told in failures:
            asked = {"constraint": "broken", "constraint_settings": {"how": how}}
            body = {"prompt": "a", "max_tokens": 4, "dise": asked}
            answer = httpx.post(f"{url}/v1/completions", json=body, timeout=60)
            assert (answer.status_code, how) == (status, how), answer.text
            assert re.search(told.replace("()", r"\(\)"), answer.json()["error"]["message"])


def test_while_constraints_are_prepared_others_are_answered() -> None:
    """The latencies are shown: on a machine with neighbours they say little."""

    async def prepared(llm: AsyncLLM, case: tuple[str, Any]) -> None:
        try:
            await llm.generate([1, 2], asked(case))
        except (InputError, OverloadedError):
            return

    async def main() -> list[float]:
        latencies = []
        async with AsyncLLM(AsciiPredictor()) as llm:
            tasks = [asyncio.create_task(prepared(llm, case)) for case in (SLOW + GROWING) * 2]
            while not all(task.done() for task in tasks):
                begun = time.perf_counter()
                [answer] = await llm.generate([1, 2], SamplingParams(max_tokens=8, logprobs=None))
                latencies.append(time.perf_counter() - begun)
                assert answer.outputs
                await asyncio.sleep(0.05)  # answering without a pause takes a core
        return latencies

    latencies = asyncio.run(main())
    print(f"{len(latencies)} others answered, in {max(latencies):.2f} s at most")
    assert len(latencies) > 10
