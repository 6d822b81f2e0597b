"""The settings of strategies and the options of requests, as their pydantic models' own schemas
describe them: for the server's list, the page and `dise plugins`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, JsonSchemaWarningKind
from pydantic_core import PydanticOmit

from dise_core.errors import error_line
from dise_core.records import Record

TYPES = ("integer", "number", "boolean", "string")
"""The types of settings that are told; any other is "json"."""

BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "maxLength", "enum")
"""What is told of a setting's range, in the words of JSON Schema."""


def settings_or_problem(cls: type[object]) -> tuple[list[Record], str | None]:
    """Return the settings of a strategy; none for a class without fields, and none, with what is
    wrong, for one whose schema cannot be made.
    """
    if not issubclass(cls, BaseModel):
        return [], None
    try:
        return settings_of(cls), None
    except Exception as error:
        return [], f"its settings cannot be listed: {error_line(error):.300}"


def settings_of(model: type[BaseModel]) -> list[Record]:
    """Return the fields of a pydantic model, each with its name, type, default, range and
    description.

    type: one of TYPES, or "json" for any other JSON value. nullable: whether null is allowed too. A
    range is told in the words of JSON Schema.
    """
    schema = model.model_json_schema(schema_generator=_Lenient)
    required, parts = schema.get("required", []), schema.get("$defs", {})
    return [
        _setting(name, field, name in required, parts)
        for name, field in schema.get("properties", {}).items()
    ]


def _setting(name: str, schema: Record, is_required: bool, definitions: Record) -> Record:
    """definitions: the schemas that this one refers to, by name."""
    given = schema.get("anyOf", [schema])
    parts = [part for part in given if part.get("type") != "null"]
    part = parts[0] if len(parts) == 1 else {}
    part = definitions.get(part.get("$ref", "").rpartition("/")[2], part)
    kind = part.get("type")
    is_simple = kind in TYPES
    return {
        "name": name,
        "type": kind if is_simple else "json",
        "nullable": len(parts) < len(given),
        "required": is_required,
        "default": _finite(schema.get("default")),
        "description": schema.get("description", ""),
        **(_inclusive(part) if is_simple else {}),
    }


def _inclusive(part: Record) -> Record:
    """Return the bounds of a setting; integers' are inclusive."""
    bounds = {key: part[key] for key in BOUNDS if _finite(part.get(key)) is not None}
    if "const" in part:
        bounds["enum"] = [part["const"]]
    if part["type"] == "integer":
        for exclusive, inclusive, step in (
            ("exclusiveMinimum", "minimum", 1),
            ("exclusiveMaximum", "maximum", -1),
        ):
            if exclusive in bounds:
                bounds[inclusive] = bounds.pop(exclusive) + step
    return bounds


def _finite(value: object) -> object:
    """Return a JSON value with null for each number that JSON cannot express."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
    return value


class _Lenient(GenerateJsonSchema):
    """pydantic's generator, but a field that no JSON value can set is left out, and one that a
    function alone validates may have any.
    """

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """Do nothing: a default that is no JSON value is listed as null."""

    def handle_invalid_for_json_schema(
        self,
        schema: Mapping[str, object],
        error_info: str,  # noqa: ARG002
    ) -> JsonSchemaValue:
        """Return the schema of any value, or leave the field out."""
        if schema["type"] == "function-plain":
            return {}
        raise PydanticOmit
