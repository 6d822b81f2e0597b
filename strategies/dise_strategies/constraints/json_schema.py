"""Answers that are JSON."""

from typing import ClassVar, Literal

from pydantic import AliasChoices, Field

from dise_core import Constraint
from dise_core.records import Record
from dise_strategies.constraints.schema.texts import SPACINGS
from dise_strategies.constraints.schema.writer import expression_of, short_expression_of


class JsonSchema(Constraint):
    """Answers are JSON that is valid under a schema of draft 2020-12.

    Keywords that cannot be guaranteed are refused; only descriptions are ignored.
    """

    is_json: ClassVar[bool] = True
    in_child: ClassVar[bool] = True

    json_schema: Record | bool | str = Field(validation_alias=AliasChoices("json_schema", "schema"))
    """The schema, or its JSON text; `schema` for short. Properties keep its order."""
    whitespace: Literal["json", "none"] = "json"
    """json: a space after each comma and colon, as json.dumps. none: none."""
    max_depth: int = Field(default=3, ge=1, le=8)
    """How often a reference may lead into itself."""

    def expression(self) -> str:
        return expression_of(self.json_schema, SPACINGS[self.whitespace], self.max_depth)

    def _short_expression(self) -> str | None:
        schema, spacing = self.json_schema, SPACINGS[self.whitespace]
        return short_expression_of(schema, spacing, self.max_depth)


class AnyJsonObject(Constraint):
    """Answers are any JSON object of at most three levels."""

    is_json: ClassVar[bool] = True

    whitespace: Literal["json", "none"] = "json"
    """json: a space after each comma and colon, as json.dumps. none: none."""

    def expression(self) -> str:
        return expression_of({"type": "object"}, SPACINGS[self.whitespace])
