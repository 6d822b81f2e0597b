"""Mappings from strings to any values: JSON, settings, keyword arguments."""

import math
from collections.abc import Mapping
from typing import Any

from dise_core.struck import is_unset

Record = dict[str, Any]

Fields = Mapping[str, Any]
"""A read-only Record."""

JsonFields = Mapping[str, object]
"""The fields of an object of JSON, which may be anything until they are looked at."""


def is_deeper(value: object, max_depth: int) -> bool:
    """Return whether a value lies in more than `max_depth` lists and objects."""
    level = [value]
    for _ in range(max_depth + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return bool(level)


def json_number(value: float | None) -> float | None:
    """Return the number as JSON has it: null for one that is not finite."""
    return value if value is not None and math.isfinite(value) else None


def filled(fields: JsonFields, defaults: JsonFields) -> Record:
    """Return the fields, with the defaults of those that are missing; in an object that is
    there those of its own, while a missing object of some stays missing. Where there are
    defaults, options that were taken out are left out if they were at theirs.
    """
    if defaults:
        fields = {name: value for name, value in fields.items() if not is_unset(name, value)}
    missing = {
        name: default
        for name, default in defaults.items()
        if name not in fields and not (isinstance(default, dict) and default)
    }
    objects = {
        name: filled(value, default)
        for name, default in defaults.items()
        if isinstance(default, dict) and isinstance(value := fields.get(name), dict)
    }
    return {**fields, **missing, **objects}


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


ABSENT = _Absent()
"""Stands for a value that a record lacks: None is one that it may have."""


def first_difference(name: str, first: object, second: object) -> tuple[str, object, object]:
    """Return the first values in which two records of that name differ, by the names that
    lead to them, as in "settings.k", ABSENT for one that a record lacks; the two values
    themselves if they are no records, or equal.
    """
    if not isinstance(first, Mapping) or not isinstance(second, Mapping) or first == second:
        return name, first, second
    pairs = ((key, first.get(key, ABSENT), second.get(key, ABSENT)) for key in {**first, **second})
    key, one, other = next(pair for pair in pairs if pair[1] != pair[2])
    return first_difference(f"{name}.{key}" if name else key, one, other)
