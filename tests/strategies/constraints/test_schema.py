"""The writer from schemas to regular expressions, with jsonschema as the judge."""

from __future__ import annotations

import datetime
import enum
import itertools
import json
import random
import re
import time
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from dise_core import InputError
from dise_core.constraints.building import Source
from dise_strategies.constraints.json_schema import JsonSchema
from dise_strategies.constraints.schema.texts import SPACINGS
from dise_strategies.constraints.schema.writer import expression_of
from tests.strategies.constraints.schemas import long_constants, many_references, schemas, values

JSON = SPACINGS["json"]
SLOW = settings(deadline=None, suppress_health_check=list(HealthCheck))


def is_valid(value: Any, schema: Any) -> bool:
    kind = jsonschema.Draft202012Validator
    return bool(kind(schema, format_checker=kind.FORMAT_CHECKER).is_valid(value))


def accepts(schema: Any, text: str, **options: Any) -> bool:
    return re.fullmatch(expression_of(schema, JSON, **options), text) is not None


def texts(expression: str) -> st.SearchStrategy[str]:
    letters = st.characters(codec="utf-8")
    return st.from_regex(re.compile(expression), fullmatch=True, alphabet=letters)


@settings(SLOW, max_examples=min(50, settings().max_examples))
@given(st.data(), schemas(), st.sampled_from(sorted(SPACINGS)))
def test_whatever_is_accepted_is_valid_under_the_schema(data: Any, schema: Any, how: str) -> None:
    text = data.draw(texts(expression_of(schema, SPACINGS[how])))
    assert is_valid(json.loads(text), schema), text


@pytest.mark.parametrize(
    ("schema", "is_small"),
    [
        ({"type": "integer", "minimum": 10, "maximum": 999}, True),
        ({"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"enum": [1, "é"]}}}, True),
        ({"properties": {f"p{number}": {"type": "string"} for number in range(5)}}, True),
        ({"anyOf": [{"$ref": "#/$defs/a"}] * 150, "$defs": {"a": {"const": 1}}}, False),
        ({"const": "x" * 5000}, False),
        (many_references(1000, 1300, 2000), False),
    ],
    ids=lambda value: str(value)[:30],
)
def test_ordinary_schemas_need_no_worker(schema: Any, is_small: bool) -> None:
    constraint = JsonSchema(schema=schema)
    source = Source.of(constraint)
    assert source.is_small == (source.maker is None) == is_small
    assert not is_small or source.text == constraint.expression()


@SLOW
@given(st.data(), schemas(), st.sampled_from(sorted(SPACINGS)))
def test_a_valid_value_is_accepted_as_json_writes_it(data: Any, schema: Any, how: str) -> None:
    value = data.draw(values(schema))
    assert is_valid(value, schema)
    text = json.dumps(value, ensure_ascii=False, separators=SPACINGS[how])
    assert re.fullmatch(expression_of(schema, SPACINGS[how]), text), text


@pytest.mark.parametrize("low", range(-25, 120, 7))
def test_bounds_of_whole_numbers_are_kept_to_the_last(low: int) -> None:
    for high in (None, *range(low, 1300, 41)):
        bounds = {"minimum": low - 0.5} | ({} if high is None else {"exclusiveMaximum": high + 1})
        pattern = re.compile(expression_of({"type": "integer", **bounds}, JSON))
        for number in range(-130, 1400):
            fits = low <= number and (high is None or number <= high)
            assert bool(pattern.fullmatch(str(number))) == fits, (bounds, number)


def test_every_day_of_the_calendar_is_a_date_and_no_other_day() -> None:
    pattern = re.compile(expression_of({"type": "string", "format": "date"}, JSON))
    for year in (1, 4, 99, 100, 400, 1900, 2000, 2023, 2024, 2100, 9999):
        for month, day in itertools.product(range(14), range(33)):
            text = f"{year:04}-{month:02}-{day:02}"
            try:
                is_day = bool(datetime.date(year, month, day))
            except ValueError:
                is_day = False
            assert bool(pattern.fullmatch(f'"{text}"')) == is_day, text
    assert not pattern.fullmatch('"0000-01-01"')


NODE = {"$defs": {"N": {"type": "object", "properties": {"n": {"$ref": "#/$defs/N"}}}}}


def test_a_schema_leads_into_itself_as_often_as_is_told() -> None:
    schema = NODE | {"$ref": "#/$defs/N"}
    for depth in (1, 2, 3, 5):
        text = '{"n": ' * (depth - 1) + "{}" + "}" * (depth - 1)
        assert accepts(schema, text, max_depth=depth)
        assert not accepts(schema, f'{{"n": {text}}}', max_depth=depth)


def test_any_of_two_hundred_optional_properties_may_be_left_out() -> None:
    names = [f"p{index}" for index in range(200)]
    expression = expression_of({"properties": {name: {"type": "null"} for name in names}}, JSON)
    assert len(expression) < 200 * 4 * 25
    drawn = random.Random(7)
    for share in (0, 0.01, 0.3, 1):
        present = [name for name in names if drawn.random() < share]
        assert re.fullmatch(expression, json.dumps(dict.fromkeys(present)))
    assert not re.fullmatch(expression, '{, "p1": null}')


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: Annotated[int, Field(ge=0, lt=10)] = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    born: datetime.date | None = None


class Owner(BaseModel):
    """A model with most of what pydantic describes."""

    name: str = Field(min_length=1, max_length=20)
    colour: Colour
    pet: Cat | Dog = Field(discriminator="kind")
    pets: list[Cat | Dog] = Field(default_factory=list, max_length=3)
    ages: dict[str, float] = Field(default_factory=dict)
    pair: tuple[int, bool] = (1, True)
    friends: list[Owner] = Field(default_factory=list, description="Who else")


@settings(SLOW, max_examples=20)
@given(st.data())
def test_answers_to_a_pydantic_model_are_of_the_model(data: Any) -> None:
    expression = expression_of(Owner.model_json_schema(), JSON, 1)
    Owner.model_validate_json(data.draw(texts(expression)))
    text = '{"name": "Ann", "colour": "red", "pet": {"kind": "dog", "born": null}, "friends": []}'
    assert re.fullmatch(expression, text)


def nested(number: int) -> Any:
    schema: Any = {}
    for _ in range(number):
        schema = {"items": schema}
    return schema


def spread(number: int) -> Any:
    defs = {f"d{i}": {"prefixItems": [{"$ref": f"#/$defs/d{i + 1}"}] * 9} for i in range(number)}
    return {"$defs": {**defs, f"d{number}": {"type": "null"}}, "$ref": "#/$defs/d0"}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (nested(33), "at most 32 schemas may lie in one another"),
        (nested(200), "100 levels"),
        (spread(9), "more than 20000 schemas|more than 200000 characters"),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 1000}}},
            "schemas",
        ),
        (many_references(1000, 1300, 2000), "whose const differs"),
        (many_references(1000, 1300, 2000, "anyOf"), "at most 1000 entries"),
        (many_references(1000, 1000, 1000, "anyOf"), "more than 200000 characters"),
        (long_constants(1000, 38_000), "more than 200000 characters"),
    ],
)
def test_a_schema_that_grows_without_end_is_refused_at_once(schema: Any, text: str) -> None:
    before = time.process_time()
    with pytest.raises(InputError, match=text):
        expression_of(schema, JSON, 8)
    assert time.process_time() - before < 2
