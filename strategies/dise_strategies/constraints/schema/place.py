"""A place in a schema: its value, how it was reached, and its keywords."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

from dise_core.errors import InputError, shown

MAX_DEPTH = 32
"""Schemas inside one another, references counted: about 16 nested models."""

MAX_COUNT = 1000
"""Of one list, string, object or enum."""

DESCRIBING = {"title", "description", "default", "examples", "deprecated", "discriminator"}
DESCRIBING |= {"readOnly", "writeOnly", "$schema", "$comment", "$defs"}
"""Keywords that forbid nothing. `$id` is one at the top; below, it changes references."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Place:
    """schema: its value. pointer: where it is. refs: the pointers that led to it."""

    schema: Any
    pointer: str = ""
    depth: int = 0
    refs: tuple[str, ...] = ()

    def at(self, *steps: str | int) -> Self:
        schema, pointer = self.schema, self.pointer
        for step in steps:
            schema = schema[step]
            pointer += "/" + str(step).replace("~", "~0").replace("/", "~1")
        return self.inside(schema, pointer, self.refs)

    def inside(self, schema: Any, pointer: str, refs: tuple[str, ...]) -> Self:
        if self.depth == MAX_DEPTH:
            raise self.refusal(f"at most {MAX_DEPTH} schemas may lie in one another")
        return replace(self, schema=schema, pointer=pointer, depth=self.depth + 1, refs=refs)

    def refusal(self, reason: str, keyword: str | None = None) -> InputError:
        """Return the error that names the place, or a keyword of it."""
        pointer = self.pointer if keyword is None else f"{self.pointer}/{keyword}"
        value = self.schema if keyword is None else self.schema.get(keyword)
        return InputError(f"schema {pointer or '/'} = {shown(value)}: {reason}", "constraint")

    def only(self, keywords: Collection[str], context: str) -> None:
        """Raise InputError for any other keyword that forbids something."""
        for keyword in self.schema.keys() - DESCRIBING - set(keywords):
            if keyword != "$id" or self.pointer:
                raise self.refusal(f"cannot be guaranteed {context}; leave it out", keyword)

    def read(self, keyword: str, kind: type[T]) -> T:
        """Return a keyword's value, an empty one without it."""
        value = self.schema.get(keyword, kind())
        if not isinstance(value, kind):
            raise self.refusal(f"must be of type {kind.__name__}", keyword)
        if isinstance(value, list | dict) and len(value) > MAX_COUNT:
            raise self.refusal(f"may hold at most {MAX_COUNT} entries", keyword)
        return value

    def counts(self, minimum: str, maximum: str) -> tuple[int, int | None]:
        """Return the values of two keywords, 0 and None without them."""
        for keyword in {minimum, maximum} & self.schema.keys():
            value = self.schema[keyword]
            if type(value) is not int or not 0 <= value <= MAX_COUNT:
                raise self.refusal(f"must be a whole number from 0 to {MAX_COUNT}", keyword)
        low, high = self.schema.get(minimum, 0), self.schema.get(maximum)
        if high is not None and low > high:
            raise self.refusal(f"is less than {minimum}", maximum)
        return low, high
