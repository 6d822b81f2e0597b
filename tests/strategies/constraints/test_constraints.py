"""Constraints by name, and what they refuse."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dise_core import Constraint, SamplingParams
from dise_core.plugins.discovery import installed_catalog
from dise_core.plugins.kinds import CONSTRAINT
from dise_core.testing import check_constraint


def constraint_of(name: str, **settings: Any) -> Constraint:
    params = SamplingParams(constraint=name, constraint_settings=settings)
    constraint = installed_catalog().chosen(CONSTRAINT, params)
    assert constraint is not None
    return constraint


def expression(name: str, **settings: Any) -> str:
    constraint = constraint_of(name, **settings)
    check_constraint(constraint)
    return constraint.expression()


def test_without_a_name_there_is_no_constraint() -> None:
    assert installed_catalog().chosen(CONSTRAINT, SamplingParams()) is None


@given(st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=9), st.text(max_size=5))
def test_every_choice_is_accepted_whatever_it_begins_with(choices: list[str], other: str) -> None:
    choice_of_all = constraint_of("choice", choices=[*choices, choices[0] + "2"])
    pattern = re.compile(choice_of_all.expression())
    for choice in (*choices, choices[0] + "2"):
        assert pattern.fullmatch(choice)
    assert bool(pattern.fullmatch(other)) == (other in {*choices, choices[0] + "2"})


def test_a_schema_may_be_given_as_text_and_by_its_short_name() -> None:
    schema = {"type": "object", "properties": {"b": {}, "a": {"type": "null"}}, "required": ["a"]}
    told = expression("json-schema", json_schema=schema, whitespace="none")
    assert re.fullmatch(told, '{"b":[1,{"x":0}],"a":null}')
    text = '{"type": "object", "properties": {"b": {}, "a": {"type": "null"}}, "required": ["a"]}'
    assert expression("json-schema", schema=text, whitespace="none") == told


def test_any_object_holds_three_levels() -> None:
    pattern = re.compile(expression("json-object"))
    for text in ("{}", '{"a": [1, -2.5e+3, "\\"é"], "b": [{"c": true}]}'):
        assert pattern.fullmatch(text)
    for text in ("[]", '{"a": [[[1]]]}', '{"a":1}', '{"a": 01}', "{a: 1}", '{"a": 1,}'):
        assert not pattern.fullmatch(text)
