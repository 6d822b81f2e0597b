"""Functions that a chat may call, and earlier calls, as OpenAI has them."""

import re
import uuid
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Json, StringConstraints

from dise_app.server.schemas.bodies import OpenBody
from dise_app.server.schemas.forms import refused
from dise_core.records import Record

CALL = re.compile(r'\{"name": "(.*?)", "arguments": (.*)\}', re.DOTALL)


class Function(OpenBody):
    """A function, whose arguments are valid under its parameters, strict or not."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_.:/-]{1,64}$")]
    description: str | None = None
    parameters: Record | None = None
    strict: bool | None = None

    @property
    def arguments(self) -> Record:
        """The schema of the arguments: a function without any takes none, not all."""
        schema = self.parameters or {"properties": {}}
        has_none = schema.get("properties") == {} and not schema.get("required")
        return {"const": {}} if has_none else schema


class Tool(OpenBody):
    """A tool, all of which are functions, or the choice of one by its name."""

    type: Literal["function"]
    function: Function


class FunctionCall(OpenBody):
    """What a call says. Templates read the arguments as an object."""

    name: str
    arguments: Json[Record]


class EarlierCall(OpenBody):
    """A call in an earlier turn."""

    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


def call_schema(functions: Sequence[Function]) -> Record:
    """Return the schema of a call, with definitions at its top for $ref."""
    calls: list[Record] = []
    defined: Record = {}
    for function in functions:
        schema = function.arguments
        members = {"name": {"const": function.name}, "arguments": schema}
        calls.append({"type": "object", "properties": members, "required": list(members)})
        definitions = schema.get("$defs")
        for name, definition in definitions.items() if isinstance(definitions, dict) else ():
            if defined.setdefault(name, definition) != definition:
                raise refused(
                    "tools", f"the tools define {name!r:.80} in two ways; give one another name"
                )
    return {"anyOf": calls, "$defs": defined}


def call_of(text: str, function_name: str | None) -> Record:
    """Return an answer as a call. function_name: if it holds only the arguments."""
    call = CALL.fullmatch(text)
    name, arguments = (function_name, text) if function_name or call is None else call.groups()
    function = {"name": name, "arguments": arguments}
    return {"id": f"call_{uuid.uuid4().hex}", "type": "function", "function": function}
