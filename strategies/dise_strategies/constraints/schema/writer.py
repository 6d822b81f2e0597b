"""A JSON schema as a regular expression of JSON that is valid under it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from dise_core import InputError
from dise_core.constraints.spans import TYPES
from dise_core.records import Record, is_deeper
from dise_strategies.constraints.schema.containers import arrays, objects
from dise_strategies.constraints.schema.place import Place
from dise_strategies.constraints.schema.scalars import integers, strings
from dise_strategies.constraints.schema.texts import (
    BOOLEAN,
    NUMBER,
    Spacing,
    any_value,
    collect,
    either,
    ensure_short,
    json_text,
)

MAX_SCHEMA, MAX_NESTED = 2**16, 100
"""Characters of a schema's text, and lists and objects inside one another in it."""

MAX_PARTS = 20_000
"""Schemas that are written, each as often as it is referred to."""

SHORT, FEW_PARTS = 4096, 200
"""Characters of a schema and schemas that are written in milliseconds."""

ALONE = {"$ref": (), "anyOf": (), "oneOf": (), "const": ("type",), "enum": ("type",)}
"""Keywords that say all of a place, and what may stand beside each."""

KEYWORDS: dict[str, frozenset[str]] = {
    "object": frozenset({"properties", "required", "additionalProperties"}),
    "array": frozenset({"items", "prefixItems", "minItems", "maxItems"}),
    "string": frozenset({"minLength", "maxLength", "format"}),
    "number": frozenset(),
    "integer": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}),
    "boolean": frozenset(),
    "null": frozenset(),
}
"""The types of JSON, and the keywords of each."""


def expression_of(schema: Record | bool | str, spacing: Spacing, max_depth: int = 3) -> str:
    """Return the expression of JSON that is valid under a schema of draft 2020-12, with
    max_depth levels of one that refers to itself. Raises InputError for what cannot be
    guaranteed. Not all valid JSON is written: properties stand in declared order and no
    others beside them, exponents are short, and no text has \\u.
    """
    return _written(_parse(schema), spacing, max_depth, MAX_PARTS)


def short_expression_of(
    schema: Record | bool | str, spacing: Spacing, max_depth: int
) -> str | None:
    """Return the same if milliseconds are enough for it, else None."""
    root = _parse(schema)
    if len(json.dumps(root)) > SHORT:
        return None
    try:
        return _written(root, spacing, max_depth, FEW_PARTS)
    except ManyPartsError:
        return None


def _written(root: Record | bool, spacing: Spacing, max_depth: int, max_parts: int) -> str:
    top = Place(root)
    expression = _Writer(top, spacing, max_depth, max_parts).write(top)
    if expression is None:
        raise InputError(
            "no JSON can be written for the schema: what it requires is false, out of bounds, "
            f"or leads into itself more than max_depth={max_depth} times",
            "constraint",
        )
    return expression


def _parse(schema: Record | bool | str) -> Record | bool:
    try:
        text = schema if isinstance(schema, str) else json.dumps(schema, ensure_ascii=False)
        root: Record | bool = json.loads(text) if len(text) <= MAX_SCHEMA else {}
        json.dumps(root, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"the schema is no JSON: {error}", "constraint") from None
    if len(text) > MAX_SCHEMA or is_deeper(root, MAX_NESTED):
        raise InputError(
            f"the schema may have at most {MAX_SCHEMA} characters and {MAX_NESTED} levels of "
            "lists and objects",
            "constraint",
        )
    return root


class ManyPartsError(InputError):
    """A schema has more parts than may be written."""


@dataclass(slots=True)
class _Writer:
    top: Place
    spacing: Spacing
    max_depth: int
    max_parts: int
    num_parts: int = 0
    targets: dict[str, Place] = field(init=False)
    """What references may lead to."""

    def __post_init__(self) -> None:
        self.targets = {"#": self.top}
        for name in self.top.read("$defs", dict) if isinstance(self.top.schema, dict) else ():
            target = self.top.at("$defs", name)
            self.targets[f"#{target.pointer}"] = target

    def write(self, place: Place) -> str | None:
        """Return the expression of a place's values, None where there are none."""
        self.num_parts += 1
        if self.num_parts > self.max_parts:
            refusal = place.refusal(f"references lead to more than {self.max_parts} schemas")
            raise ManyPartsError(str(refusal), refusal.parameter)
        if isinstance(place.schema, bool):
            return any_value(self.spacing) if place.schema else None
        if not isinstance(place.schema, dict):
            raise place.refusal("a schema is an object, true or false")
        keyword = next((keyword for keyword in ALONE if keyword in place.schema), None)
        if keyword is not None:
            place.only({keyword, *ALONE[keyword]}, f"beside {keyword!r}")
        match keyword:
            case "$ref":
                target = self._target(place)
                is_cut = target.refs.count(target.pointer) > self.max_depth
                expressions = [] if is_cut else [self.write(target)]
            case "anyOf" | "oneOf":
                expressions = collect(map(self.write, self._branches(place, keyword)))
            case "const" | "enum":
                expressions = self._constants(place, keyword)
            case _:
                expressions = self._typed(place)
        possible = [expression for expression in expressions if expression is not None]
        return ensure_short(either(possible)) if possible else None

    def _target(self, place: Place) -> Place:
        """Return the place that a place refers to, itself if it refers to none."""
        if not isinstance(place.schema, dict) or "$ref" not in place.schema:
            return place
        target = self.targets.get(unquote(place.read("$ref", str)))
        if target is None:
            raise place.refusal("can be '#' or '#/$defs/NAME' of those there are", "$ref")
        return place.inside(target.schema, target.pointer, (*place.refs, target.pointer))

    def _branches(self, place: Place, keyword: str) -> list[Place]:
        number = len(place.read(keyword, list))
        if not number:
            raise place.refusal("must hold a schema", keyword)
        branches = [place.at(keyword, index) for index in range(number)]
        if keyword == "oneOf" and not _differ([self._target(branch) for branch in branches]):
            raise place.refusal(
                "its schemas must be objects that require one property whose const differs; "
                "otherwise use anyOf",
                keyword,
            )
        return branches

    def _constants(self, place: Place, keyword: str) -> list[str | None]:
        values = [place.schema["const"]] if keyword == "const" else place.read("enum", list)
        types = _types(place) or list(KEYWORDS)
        types += ["integer"] * ("number" in types)
        return [json_text(v, self.spacing) for v in values if TYPES[type(v)] in types]

    def _typed(self, place: Place) -> list[str | None]:
        types = _types(place)
        keywords = {"type"}.union(*(KEYWORDS[name] for name in types))
        place.only(keywords, f"for {' or '.join(types) or 'any type'}")
        return [self._of(place, name) for name in types] or [any_value(self.spacing)]

    def _of(self, place: Place, name: str) -> str | None:
        match name:
            case "object":
                return objects(place, self.write, self.spacing)
            case "array":
                return arrays(place, self.write, self.spacing)
            case "string":
                return strings(place)
            case "integer":
                return integers(place)
        return {"number": NUMBER, "boolean": BOOLEAN, "null": "null"}[name]


def _types(place: Place) -> list[str]:
    """Return the types that a place names; where it names none, the types of its
    keywords. "number" includes "integer", whose bounds could not be kept beside it.
    """
    if "type" not in place.schema:
        return [name for name in KEYWORDS if KEYWORDS[name] & place.schema.keys()]
    names = place.schema["type"]
    types = names if isinstance(names, list) else [names]
    if not types or not all(isinstance(name, str) and name in KEYWORDS for name in types):
        raise place.refusal(f"can be one or several of {', '.join(KEYWORDS)}", "type")
    hidden = {"integer"} if "number" in types else set()
    return [name for name in dict.fromkeys(types) if name not in hidden]


def _differ(branches: Sequence[Place]) -> bool:
    """Return whether one property that all branches require tells them apart by its text.
    One that stands twice is looked at once, and then differs from nothing.
    """
    tags = {branch.pointer: _tags(branch.schema) for branch in branches}
    if len(tags) < len(branches):
        return False
    shared = set.intersection(*(set(texts) for texts in tags.values()))
    return any(len({texts[name] for texts in tags.values()}) == len(tags) for name in shared)


def _tags(schema: Any) -> dict[str, str]:
    """Return the one text that each required property of objects may be, if it is one."""
    match schema:
        case {"type": "object", "properties": {**properties}, "required": [*required]}:
            names = {name for name in required if isinstance(name, str)} & properties.keys()
            texts = ((k, v.get("const")) for k, v in properties.items() if isinstance(v, dict))
            return {name: text for name, text in texts if name in names and isinstance(text, str)}
    return {}
