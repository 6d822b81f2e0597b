"""Expressions of strings, and of whole numbers between bounds."""

import math

from dise_strategies.constraints.schema.place import Place
from dise_strategies.constraints.schema.texts import CHARACTER, INTEGER, either

LARGEST = 10**20 - 1
"""The largest bound, and the largest number without one; its negative is the smallest."""

_YEAR = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_LEAP = "(?:0[48]|[2468][048]|[13579][26])"
_DAY = (
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_DATE = f"(?:{_YEAR}-{_DAY}|(?:[0-9]{{2}}{_LEAP}|{_LEAP}00)-02-29)"
_MINUTE = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = rf"{_MINUTE}:[0-5][0-9](?:\.[0-9]{{1,6}})?(?:Z|[+-]{_MINUTE})"

FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "uuid": "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
}
"""RFC 3339, without leap seconds; RFC 4122."""


def strings(place: Place) -> str:
    """Return the expression of a place's strings; a format stands without lengths."""
    low, high = place.counts("minLength", "maxLength")
    if "format" in place.schema:
        if not place.schema.keys().isdisjoint(("minLength", "maxLength")):
            raise place.refusal("cannot be guaranteed beside a length; leave one out", "format")
        if (name := place.read("format", str)) not in FORMATS:
            raise place.refusal(f"can be one of {', '.join(sorted(FORMATS))}", "format")
        return f'"{FORMATS[name]}"'
    return f'"{CHARACTER}{{{low},{"" if high is None else high}}}"'


def integers(place: Place) -> str | None:
    """Return the expression of a place's whole numbers; None if there are none."""
    lows = [math.ceil(bound) for bound in _bounds(place, "minimum")]
    lows += [math.floor(bound) + 1 for bound in _bounds(place, "exclusiveMinimum")]
    highs = [math.floor(bound) for bound in _bounds(place, "maximum")]
    highs += [math.ceil(bound) - 1 for bound in _bounds(place, "exclusiveMaximum")]
    if not lows + highs:
        return INTEGER
    low, high = max(lows, default=-LARGEST), min(highs, default=LARGEST)
    parts = [f"-{part}" for part in _between(max(1, -high), -low)]
    parts += _between(max(0, low), high)
    return either(parts) if parts else None


def _bounds(place: Place, keyword: str) -> list[float]:
    if keyword not in place.schema:
        return []
    value = place.schema[keyword]
    if type(value) not in {int, float} or abs(value) > LARGEST:
        raise place.refusal("must be a number of at most 20 digits", keyword)
    return [value]


def _between(low: int, high: int) -> list[str]:
    """Return the expressions of the numbers low >= 0 to high, one for each length."""
    parts = []
    for length in range(len(str(low)), len(str(high)) + 1):
        lowest = max(low, 10 ** (length - 1) if length > 1 else 0)
        highest = min(high, 10**length - 1)
        if lowest <= highest:
            parts.append(_digits(str(lowest), str(highest)))
    return parts


def _digits(low: str, high: str) -> str:
    """Return the expression of the digits from low to high, two texts of one length."""
    if not low:
        return ""
    lowest, highest, num_digits = int(low[0]), int(high[0]), len(low) - 1
    if lowest == highest:
        return low[0] + _digits(low[1:], high[1:])
    parts = []
    if low[1:].strip("0"):
        parts.append(low[0] + _digits(low[1:], "9" * num_digits))
        lowest += 1
    if high[1:].strip("9"):
        parts.append(high[0] + _digits("0" * num_digits, high[1:]))
        highest -= 1
    if lowest <= highest:
        digits = f"[0-9]{{{num_digits}}}" if num_digits else ""
        parts.append(f"[{lowest}-{highest}]{digits}")
    return either(parts)
