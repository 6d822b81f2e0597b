"""The settings of strategies and requests, from their pydantic schemas."""

import json
from collections.abc import Mapping

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, JsonSchemaWarningKind
from pydantic_core import PydanticOmit, to_json

from dise_core.errors import error_line
from dise_core.records import Record

TYPES = ("integer", "number", "boolean", "string")
"""Types of settings by name. A list of texts is "texts", any other type "json"."""

BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "maxLength", "enum")
"""A setting's range, in the words of JSON Schema."""


def settings_or_problem(cls: object) -> tuple[list[Record], str | None]:
    """Return a strategy's settings, or why they cannot be listed."""
    if not (isinstance(cls, type) and issubclass(cls, BaseModel)):
        return [], None
    try:
        return settings_of(cls), None
    except Exception as error:
        return [], f"its settings cannot be listed: {error_line(error):.300}"


def settings_of(model: type[BaseModel]) -> list[Record]:
    """Return the fields of a pydantic model, in the words of JSON Schema. type: one of
    TYPES, "texts" or "json"; nullable: whether null is allowed; a number that JSON cannot
    express is null.
    """
    schema = model.model_json_schema(schema_generator=_Lenient)
    schema = json.loads(to_json(schema, inf_nan_mode="null"))
    required, definitions = schema.get("required", []), schema.get("$defs", {})
    return [
        _setting(name, field, name in required, definitions)
        for name, field in schema.get("properties", {}).items()
    ]


def _setting(name: str, schema: Record, is_required: bool, definitions: Record) -> Record:
    """definitions: the schemas that this one refers to, by name."""
    choices = schema.get("anyOf", [schema])
    parts = [part for part in choices if part.get("type") != "null"]
    part = parts[0] if len(parts) == 1 else {}
    part = definitions.get(part.get("$ref", "").rpartition("/")[2], part)
    is_simple = part.get("type") in TYPES
    is_texts = part.get("type") == "array" and part.get("items", {}).get("type") == "string"
    return {
        "name": name,
        "type": part["type"] if is_simple else "texts" if is_texts else "json",
        "nullable": len(parts) < len(choices),
        "required": is_required,
        "default": schema.get("default"),
        "description": schema.get("description", ""),
        **(_inclusive(part) if is_simple else {}),
    }


def _inclusive(part: Record) -> Record:
    bounds = {key: part[key] for key in BOUNDS if part.get(key) is not None}
    if "const" in part:
        bounds["enum"] = [part["const"]]
    if part["type"] == "integer":
        if "exclusiveMinimum" in bounds:
            bounds["minimum"] = bounds.pop("exclusiveMinimum") + 1
        if "exclusiveMaximum" in bounds:
            bounds["maximum"] = bounds.pop("exclusiveMaximum") - 1
    return bounds


class _Lenient(GenerateJsonSchema):
    """pydantic's generator, without fields that JSON cannot set."""

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
