"""Expressions of arrays and objects. `write` returns None for a place without values."""

import re
from collections.abc import Callable
from functools import reduce

from dise_strategies.constraints.schema.place import Place
from dise_strategies.constraints.schema.texts import (
    Spacing,
    any_value,
    collect,
    ensure_short,
    json_text,
    mapping,
)

Write = Callable[[Place], str | None]

MAX_NESTED = 32
"""Members in one chain of groups: parsers bound how deep groups may lie."""


def arrays(place: Place, write: Write, spacing: Spacing) -> str | None:
    """Return the expression of arrays. Without `items`, `prefixItems` are all."""
    low, high = place.counts("minItems", "maxItems")
    number = len(place.read("prefixItems", list))
    first = collect(write(place.at("prefixItems", index)) for index in range(number))
    item = None if first else any_value(spacing)
    if "items" in place.schema:
        item = write(place.at("items"))
    if item is None:
        high = number if high is None else min(high, number)
    if None in first or (high is not None and low > high):
        return None
    items = [value for value in first or [item] if value is not None]
    return rf"\[{_items(items[:high], item, low, high, re.escape(spacing[0]))}\]"


def _items(first: list[str], item: str | None, low: int, high: int | None, comma: str) -> str:
    """Return the expression of `low` to `high` items: the first ones, then `item`."""
    text = ""
    if high is None or high > len(first):
        maximum = "" if high is None else high - len(first)
        text = f"(?:{comma}{item}){{{max(low - len(first), 0)},{maximum}}}"
    for index, value in reversed(list(enumerate(first))):
        text = f"{comma if index else ''}{value}{text}"
        text = text if index < low else f"(?:{text})?"
    return text


def objects(place: Place, write: Write, spacing: Spacing) -> str | None:
    """Return the expression of objects: the properties in order, else any keys."""
    properties, required = place.read("properties", dict), place.read("required", list)
    for name in required:
        if not isinstance(name, str) or name not in properties:
            raise place.refusal(f"{name!r} is not among the properties", "required")
    if not properties:
        has_more = "additionalProperties" in place.schema
        value = write(place.at("additionalProperties")) if has_more else any_value(spacing)
        return r"\{\}" if value is None else mapping(value, spacing)
    names = set(required)
    values = collect(write(place.at("properties", name)) for name in properties)
    members: list[tuple[str, bool]] = []
    for name, value in zip(properties, values, strict=True):
        if value is not None:
            key = json_text(name, spacing) + re.escape(spacing[1])
            members.append((key + value, name in names))
        elif name in names:
            return None
    return rf"\{{{_members(members, re.escape(spacing[0]))}\}}"


def _members(members: list[tuple[str, bool]], comma: str) -> str:
    first = next((i for i, (_, is_required) in enumerate(members) if is_required), None)
    if first is None:
        return f"(?:{_some([member for member, _ in members], comma)})?" if members else ""
    before = "".join(f"(?:{member}{comma})?" for member, _ in members[:first])
    after = "".join(
        f"(?:{comma}{member}){'' if is_required else '?'}"
        for member, is_required in members[first + 1 :]
    )
    return before + members[first][0] + after


def _some(members: list[str], comma: str) -> str:
    """Return the expression of some members in order. It holds each at most 4 times."""
    if len(members) > MAX_NESTED:
        starts = range(0, len(members), MAX_NESTED)
        members = [_some(members[start : start + MAX_NESTED], comma) for start in starts]
    return reduce(
        lambda text, member: ensure_short(f"(?:{text}(?:{comma}{member})?|{member})"), members
    )
