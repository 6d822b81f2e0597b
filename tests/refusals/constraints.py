"""Constraints: what a JSON schema asks and nobody could guarantee, told by its place."""

from __future__ import annotations

from dise_strategies.constraints.schema.texts import SPACINGS
from dise_strategies.constraints.schema.writer import expression_of
from tests.refusals.table import Row, Table, raised

SCHEMAS: list[Row] = [
    ({"properties": {"a/b": {"type": "array", "uniqueItems": True}}}, "constraint=schema",
     "/a~1b/uniqueItems = True"),
    ({"type": "number", "minimum": 0}, "constraint=schema",
     "/minimum = 0: cannot be guaranteed for number"),
    ({"type": "string", "minLength": 1, "format": "date"}, "constraint=schema",
     "/format = 'date': … beside a length"),
    ({"type": "string", "format": "email"}, "constraint=schema",
     "/format = 'email': can be one of date, date-time"),
    ({"type": "string", "minLength": -1}, "constraint=schema",
     "/minLength = -1: must be a whole number from 0 to 1000"),
    ({"type": "string", "maxLength": 1001}, "constraint=schema", "/maxLength = 1001"),
    ({"type": "string", "minLength": 3, "maxLength": 2}, "constraint=schema",
     "/maxLength = 2: is less than minLength"),
    ({"type": "integer", "minimum": True}, "constraint=schema", "/minimum = True"),
    ({"type": "integer", "minimum": 10**20}, "constraint=schema", "at most 20 digits"),
    ({"type": "integer", "minimum": 2, "maximum": 1}, "constraint=schema",
     "no JSON can be written"),
    ({"type": "text"}, "constraint=schema", "/type = 'text': can be one or several of object"),
    ({"type": []}, "constraint=schema", "/type"),
    ({"type": [["null"]]}, "constraint=schema", "/type"),
    ({"anyOf": [{}], "type": "null"}, "constraint=schema",
     "/type = 'null': cannot be guaranteed beside 'anyOf'"),
    ({"anyOf": []}, "constraint=schema", "/anyOf = … must hold a schema"),
    ({"allOf": [{}]}, "constraint=schema", "/allOf … cannot be guaranteed for any type"),
    ({"type": "string", "pattern": "a"}, "constraint=schema",
     "/pattern = 'a': cannot be guaranteed for string"),
    ({"oneOf": [{"type": "null"}, {"type": "string"}]}, "constraint=schema",
     "/oneOf … otherwise use anyOf"),
    ({"not": {}}, "constraint=schema", "/not"),
    ({"items": [{}]}, "constraint=schema", "/items = … a schema is an object, true or false"),
    ({"properties": []}, "constraint=schema", "/properties = … must be of type dict"),
    ({"required": ["b"], "properties": {"a": {}}}, "constraint=schema",
     "/required … 'b' is not among the properties"),
    ({"required": [[]], "properties": {"a": {}}}, "constraint=schema",
     "/required … not among the properties"),
    ({"$ref": "#/properties/a"}, "constraint=schema", "can be '#' or"),
    ({"$ref": "#/$defs/x", "$defs": {}}, "constraint=schema", "of those there are"),
    ({"$ref": "#"}, "constraint=schema", "leads into itself more than max_depth=3"),
    ({"items": {"$id": "http://a"}}, "constraint=schema", "/items/$id … leave it out"),
    (False, "constraint=schema", "no JSON can be written"),
    ({"const": float("nan")}, "constraint=schema", "no JSON"),
    ({"const": "\ud800"}, "constraint=schema", "no JSON"),
    ("{", "constraint=schema", "no JSON: Expecting"),
    ("[" * 60_000, "constraint=schema", "no JSON: "),
    ({"const": "x" * 2**16}, "constraint=schema", "at most 65536 characters"),
    ({"enum": [*range(1001)]}, "constraint=schema", "/enum … at most 1000 entries"),
]  # fmt: skip

TABLES = [Table("schema", raised(lambda given: expression_of(given, SPACINGS["json"])), SCHEMAS)]
