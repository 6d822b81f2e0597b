"""Random schemas of all keywords that can be guaranteed, and random values that fit them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

NAMES = st.sampled_from(
    ["a", "qty", 'say "hi"', "back\\slash", "größe 1", "x.y*", "a,b: c", "[", ""]
)
TEXTS = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=4)
PLAIN = st.none() | st.booleans() | st.integers(-20, 20) | TEXTS
FORMATS = {
    "date": st.dates().map(str),
    "time": st.times().map(lambda time: f"{time.isoformat()}Z"),
    "date-time": st.datetimes().map(lambda moment: f"{moment.isoformat()}+05:30"),
    "uuid": st.uuids().map(str),
}


def _counts(least: str, most: str) -> st.SearchStrategy[dict[str, int]]:
    low, more = st.integers(0, 3), st.integers(0, 3)
    both = st.builds(lambda low, more: {least: low, most: low + more}, low, more)
    return both | st.just({}) | low.map(lambda n: {least: n}) | low.map(lambda n: {most: n})


def _bounds() -> st.SearchStrategy[dict[str, Any]]:
    number = st.integers(-3000, 3000) | st.integers(-12, 12)
    low = st.tuples(st.sampled_from(["minimum", "exclusiveMinimum"]), number)
    high = st.tuples(st.sampled_from(["maximum", "exclusiveMaximum"]), st.integers(2, 2500))
    below = low.map(lambda pair: dict([pair]))
    above = high.map(lambda pair: dict([pair]))
    between = st.builds(lambda a, b: {a[0]: a[1], b[0]: a[1] + b[1]}, low, high)
    return st.just({}) | below | above | between | between


def _leaves() -> st.SearchStrategy[Any]:
    constants = st.lists(PLAIN, min_size=1, max_size=4).map(lambda values: {"enum": values})
    string = _counts("minLength", "maxLength") | st.sampled_from(
        [{"format": name} for name in FORMATS]
    )
    return st.one_of(
        constants,
        PLAIN.map(lambda value: {"const": value, "title": "A constant"}),
        string.map(lambda counts: {"type": "string"} | counts),
        _bounds().map(lambda bounds: {"type": "integer"} | bounds),
        _bounds().map(lambda bounds: {"type": ["null", "integer", "boolean"]} | bounds),
        st.sampled_from([{"type": "number"}, {"type": "null"}, {"type": "boolean"}, True, {}]),
        st.just({"$ref": "#/$defs/Node"}),
    )


@st.composite
def _objects(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> Any:
    properties = draw(st.dictionaries(NAMES, inner, max_size=4))
    required = [name for name in properties if draw(st.booleans())]
    kind = draw(st.sampled_from(["object", ["object", "null"]]))
    extra = draw(st.sampled_from([{}, {"additionalProperties": False}]))
    return {"type": kind, "properties": properties or {"a": True}, "required": required} | extra


@st.composite
def _arrays(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> Any:
    first = draw(st.lists(inner, max_size=2))
    counts = draw(_counts("minItems", "maxItems"))
    return (
        {"type": "array", "items": draw(inner)} | counts | ({"prefixItems": first} if first else {})
    )


def schemas() -> st.SearchStrategy[Any]:
    """Draw a schema; {"$ref": "#/$defs/Node"} in it is a list that may lead into itself."""
    nested = st.recursive(
        _leaves(),
        lambda inner: st.one_of(
            _objects(inner),
            _arrays(inner),
            st.lists(inner, min_size=1, max_size=3).map(lambda ways: {"anyOf": ways}),
            inner.map(lambda value: {"type": "object", "additionalProperties": value}),
        ),
        max_leaves=6,
    )
    node = {
        "type": "object",
        "properties": {"next": {"$ref": "#/$defs/Node"}, "v": {"type": "null"}},
    }
    return nested.map(
        lambda schema: {"anyOf": [schema], "$defs": {"Node": node}, "$schema": "draft 2020-12"}
    )


def values(schema: Any) -> st.SearchStrategy[Any]:
    """Draw a value that fits such a schema, in the order of its properties."""
    if schema in (True, {}):
        return PLAIN | st.lists(PLAIN, max_size=2) | st.dictionaries(TEXTS, PLAIN, max_size=2)
    if "$ref" in schema:
        return st.sampled_from([{}, {"next": {}}, {"next": {"next": {}, "v": None}, "v": None}])
    if "enum" in schema or "const" in schema:
        return st.sampled_from(schema.get("enum", [schema.get("const")]))
    if "anyOf" in schema:
        return st.one_of(*map(values, schema["anyOf"]))
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return st.one_of(*(_typed(kind, schema) for kind in kinds))


def _typed(kind: str, schema: Any) -> st.SearchStrategy[Any]:
    if kind == "integer":
        low = schema.get("minimum", schema.get("exclusiveMinimum", -(10**6) - 1) + 1)
        high = schema.get("maximum", schema.get("exclusiveMaximum", low + 10**6 + 1) - 1)
        return st.integers(low, high)
    if kind == "string":
        low, high = schema.get("minLength", 0), schema.get("maxLength")
        free = st.text('aé"\\/\n\t日😀', min_size=low, max_size=high)
        return FORMATS.get(schema.get("format"), free)
    if kind in {"array", "object"}:
        return _listed(schema) if kind == "array" else _keyed(schema)
    numbers = st.integers() | st.floats(-1e9, 1e9).map(lambda number: round(number, 3))
    return {"number": numbers, "null": st.none(), "boolean": st.booleans()}[kind]


@st.composite
def _listed(draw: st.DrawFn, schema: Any) -> Any:
    low = schema.get("minItems", 0)
    number = draw(st.integers(low, schema.get("maxItems", low + 3)))
    first = schema.get("prefixItems", [])[:number]
    return [draw(values(each)) for each in [*first, *[schema["items"]] * (number - len(first))]]


@st.composite
def _keyed(draw: st.DrawFn, schema: Any) -> Any:
    if "properties" not in schema:
        return draw(st.dictionaries(TEXTS, values(schema["additionalProperties"]), max_size=2))
    return {
        name: draw(values(inner))
        for name, inner in schema["properties"].items()
        if name in schema["required"] or draw(st.booleans())
    }


def many_references(branches: int, properties: int, required: int, keyword: str = "oneOf") -> Any:
    """Return a schema of so many references to one object of so many properties, in 48 KB."""
    target = {
        "type": "object",
        "properties": {f"p{index}": True for index in range(properties)},
        "required": ["p0"] * required,
    }
    return {"$defs": {"a": target}, keyword: [{"$ref": "#/$defs/a"}] * branches}


def long_constants(items: int, length: int) -> Any:
    """Return a schema of so many items, each the constant of so many characters."""
    constant = {"const": "x" * length}
    return {"$defs": {"a": constant}, "prefixItems": [{"$ref": "#/$defs/a"}] * items}
