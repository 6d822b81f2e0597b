"""Where the values of a JSON text stand."""

import json
from dataclasses import dataclass, field

TYPES = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer"}
TYPES |= {float: "number", type(None): "null"}
"""A JSON schema's names of types; a number is an integer if it is written as one."""


@dataclass(slots=True)
class Spanned:
    """A value of a JSON text, and where it stands there, in characters, half-open. span:
    of the value, a string's quotes left out. evidence: where it was decided, up to its
    last quote or the character behind a number; of an object or an array what lies in
    none of its values.
    """

    value: object
    span: tuple[int, int]
    evidence: list[tuple[int, int]] = field(default_factory=list)


def values_of(text: str) -> dict[str, Spanned]:
    """Return each value of a JSON text, in the text's order, by its JSON pointer (RFC
    6901); of equal keys of one object the last one counts. Raises ValueError for other
    texts.
    """
    DECODER.decode(text)
    scan = _Scan(text, {})
    scan.value(scan.skip(0), "")
    return scan.values


@dataclass(frozen=True, slots=True)
class _Scan:
    """A walk over a text that is known to be JSON."""

    text: str
    values: dict[str, Spanned]

    def skip(self, at: int) -> int:
        while self.text[at] in " \t\n\r":
            at += 1
        return at

    def value(self, start: int, pointer: str) -> int:
        """Return where the value that starts there ends; note it, and those in it."""
        if self.text[start] in "{[":
            return self._container(start, pointer)
        value, stop = DECODER.raw_decode(self.text, start)
        is_text, is_number = isinstance(value, str), type(value) in (int, float)
        first, end = start + is_text, min(stop + is_number, len(self.text))
        self.values[pointer] = Spanned(value, (first, stop - is_text), [(first, end)])
        return stop

    def _container(self, start: int, pointer: str) -> int:
        is_object, members = self.text[start] == "{", dict[str, object]()
        container = self.values[pointer] = Spanned(members, (start, start))
        since, at = start, self.skip(start + 1)
        while self.text[at] not in "}]":
            key = str(len(members))
            if is_object:
                key, at = DECODER.raw_decode(self.text, at)
                at = self.skip(self.skip(at) + 1)
            inner = f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}"
            if key in members:
                for old in [path for path in self.values if f"{path}/".startswith(f"{inner}/")]:
                    del self.values[old]
            stop = self.value(at, inner)
            members[key] = self.values[inner].value
            container.evidence.append((since, at + (self.text[at] == '"')))
            since, at = stop, self.skip(stop)
            if self.text[at] == ",":
                at = self.skip(at + 1)
        container.span = (start, at + 1)
        container.evidence.append((since, at + 1))
        container.value = members if is_object else [*members.values()]
        return at + 1


# Python converts no whole number of more digits.
DECODER = json.JSONDecoder(parse_int=lambda text: int(text) if len(text) < 4300 else float(text))
