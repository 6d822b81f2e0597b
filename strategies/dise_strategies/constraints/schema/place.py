"""A place in a schema: what stands there, how it was reached, and what may be read of it."""

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
"""The keywords that forbid nothing. So does `$id` at the top; below, it changes references."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Place:
    """schema: what stands there. pointer: where. refs: the pointers that were followed to it."""

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
            raise self.refused(f"at most {MAX_DEPTH} schemas may lie in one another")
        return replace(self, schema=schema, pointer=pointer, depth=self.depth + 1, refs=refs)

    def refused(self, reason: str, keyword: str | None = None) -> InputError:
        """Return the error that names the place, or a keyword of it."""
        where = self.pointer if keyword is None else f"{self.pointer}/{keyword}"
        value = self.schema if keyword is None else self.schema.get(keyword)
        return InputError(f"schema {where or '/'} = {shown(value)}: {reason}", "constraint")

    def only(self, known: Collection[str], where: str) -> None:
        """Raise InputError for a keyword that is not known and forbids something."""
        for keyword in self.schema.keys() - DESCRIBING - set(known):
            if keyword != "$id" or self.pointer:
                raise self.refused(f"cannot be guaranteed {where}; leave it out", keyword)

    def read(self, keyword: str, kind: type[T]) -> T:
        """Return a keyword's value, an empty one without it."""
        value = self.schema.get(keyword, kind())
        if not isinstance(value, kind):
            raise self.refused(f"must be of type {kind.__name__}", keyword)
        if isinstance(value, list | dict) and len(value) > MAX_COUNT:
            raise self.refused(f"may hold at most {MAX_COUNT} entries", keyword)
        return value

    def counts(self, least: str, most: str) -> tuple[int, int | None]:
        """Return the values of two keywords, 0 and None without them."""
        for keyword in {least, most} & self.schema.keys():
            value = self.schema[keyword]
            if type(value) is not int or not 0 <= value <= MAX_COUNT:
                raise self.refused(f"must be a whole number from 0 to {MAX_COUNT}", keyword)
        low, high = self.schema.get(least, 0), self.schema.get(most)
        if high is not None and low > high:
            raise self.refused(f"is less than {least}", most)
        return low, high
