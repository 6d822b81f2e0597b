"""Forms of answers, in the words of OpenAI and vLLM. Each is a constraint."""

from typing import Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from dise_app.server.schemas.bodies import OpenBody, Strings
from dise_app.server.schemas.neutral import NOT_SUPPORTED
from dise_core.records import Record

Form = tuple[str, Record]
"""A constraint's name and its settings."""


def refused(name: str, problem: str) -> PydanticCustomError:
    """Return the refusal of the field of that name."""
    return PydanticCustomError(NOT_SUPPORTED, "{problem}", {"name": name, "problem": problem})


class ResponseFormat(OpenBody):
    """OpenAI's response_format, and text.format with the schema beside the type."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    json_schema: Record | bool | None = Field(default=None, alias="schema")
    strict: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _flat(cls, body: object) -> object:
        match body:
            case {"json_schema": {**inner}, **outer}:
                return {**inner, **outer}
        return body

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise ValueError("a schema, and its name, go with type json_schema and no other")
        return self

    @property
    def form(self) -> Form | None:
        if self.json_schema is not None:
            return "json-schema", {"json_schema": self.json_schema}
        return None if self.type == "text" else ("json-object", {})


class StructuredOutputs(OpenBody):
    """vLLM's structured_outputs. No additional properties are ever written."""

    json_schema: Record | bool | str | None = Field(default=None, alias="json")
    regex: str | None = None
    choice: Strings | None = None
    json_object: bool | None = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False

    @property
    def forms(self) -> list[Form]:
        spacing = {"whitespace": "none"} if self.disable_any_whitespace else {}
        forms: list[Form] = [("json-object", spacing)] * bool(self.json_object)
        if self.json_schema is not None:
            forms.append(("json-schema", {"json_schema": self.json_schema} | spacing))
        if self.regex is not None:
            forms.append(("regex", {"regex": self.regex}))
        return forms + ([] if self.choice is None else [("choice", {"choices": self.choice})])

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if len(self.forms) != 1:
            raise ValueError("give exactly one of json, regex, choice and json_object")
        return self
