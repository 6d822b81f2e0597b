"""Where the values of JSON texts stand, and what their tokens say of them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dise_core import Calibration, Field
from dise_core.constraints.spans import values_of
from dise_core.front.fields import JsonAnswer
from tests.calibrations import FIGURES, THRESHOLD, made
from tests.word_tokens import automaton_of

KEYS = st.text(alphabet='ab/~"\\ é😀0', max_size=3)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, width=32)
VALUES = st.recursive(
    LEAVES.filter(lambda value: value not in (float("inf"), float("-inf"))) | KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


def flat(value: object, pointer: str = "") -> dict[str, object]:
    found = {pointer: value}
    pairs: Any = value.items() if isinstance(value, dict) else ()
    for key, inner in enumerate(value) if isinstance(value, list) else pairs:
        found |= flat(inner, pointer + "/" + str(key).replace("~", "~0").replace("/", "~1"))
    return found


def fields(
    pieces: list[str],
    logprobs: list[float],
    forced: tuple[int, ...] = (),
    calibration: Calibration | None = None,
    expression: str = "(?s:.*)",
) -> dict[str, Field]:
    is_forced = np.isin(np.arange(len(pieces)), forced)
    answer = JsonAnswer(automaton_of(expression), pieces, np.array(logprobs), is_forced)
    return dict(answer.fields(calibration))


@given(VALUES, st.sampled_from([None, 1]), st.booleans())
def test_each_span_parses_to_its_value(value: object, indent: int | None, is_ascii: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=is_ascii)
    found, expected = values_of(text), flat(value)
    assert list(found) == list(expected)
    for pointer, one in found.items():
        start, stop = one.span
        quote = isinstance(one.value, str)
        assert json.loads(text[start - quote : stop + quote]) == one.value == expected[pointer]
        if not isinstance(one.value, dict | list):
            behind = stop + (quote or type(one.value) in (int, float))
            assert one.evidence == [(start, min(behind, len(text)))]


@given(VALUES, st.randoms(use_true_random=False))
def test_each_character_counts_for_its_value_and_forced_tokens_for_none(
    value: object, random: Any
) -> None:
    """A token for each character; the numbers of forced tokens are changed."""
    text = json.dumps(value)
    logprobs = np.log([random.uniform(0.01, 1) for _ in text])
    forced = tuple(index for index in range(len(text)) if random.random() < 0.4)
    found = fields([*text], logprobs.tolist(), forced)
    changed = logprobs.copy()
    changed[list(forced)] = -99
    assert fields([*text], changed.tolist(), forced) == found
    for pointer, one in values_of(text).items():
        own = {index for start, stop in one.evidence for index in range(start, stop)}
        free = sorted(own - {*forced})
        assert found[pointer].forced == (not free)
        assert found[pointer].tokens == (min(own), max(own) + 1)
        score, least = found[pointer].score, found[pointer].least
        if free:
            assert (score, least) == pytest.approx((logprobs[free].sum(), logprobs[free].min()))
        else:
            assert score is None
            assert least is None


def test_a_token_over_two_values_counts_for_both_and_the_brackets_for_their_array() -> None:
    found = fields(
        ['{"', 'a/b": "', "x", '", "n": [1, ', "2", "]", "}"], [-1, -2, -3, -4, -5, -6, -7]
    )
    sums = {"": -14, "/a~1b": -7, "/n": -10, "/n/0": -4, "/n/1": -11}
    assert {pointer: field.score for pointer, field in found.items()} == sums
    assert found["/a~1b"].tokens == (2, 4)
    assert found["/n"].least == -6


def test_tokens_of_a_part_of_a_character_count_for_it() -> None:
    """é and the emoji take two tokens each; the pieces of the first are empty."""
    found = fields(['["', "", "é", '", "', "", "😀", '"]'], [-1, -2, -3, -4, -5, -6, -7])
    assert found["/0"].tokens == (1, 4)
    assert found["/0"].score == -9
    assert found["/1"].tokens == (4, 7)


def test_of_equal_keys_the_last_counts_and_numbers_beyond_floats_have_no_json_form() -> None:
    found = fields([*'{"a": {"b": 1}, "a": [1e999]}'], [-1.0] * 29)
    assert list(found) == ["", "/a", "/a/0"]
    assert found["/a/0"].to_dict()["value"] is None
    assert values_of("9" * 5000)[""].value == float("inf")


def fit(low: float, **more: Any) -> dict[str, Any]:
    knots = {"method": "isotonic", "scores": [-9.0, 0.0], "probabilities": [low, low]}
    counts = {"num_labels": 300, "num_right": 150, "num_questions": 300}
    return {"map": knots, **counts, "figures": FIGURES, "threshold": None, **more}


def test_a_field_has_the_probability_of_its_pattern_else_of_its_type_else_none() -> None:
    fits = {"/l/*/n": fit(0.1), "integer": fit(0.2), "": fit(0.3)}
    calibration = made(map=None, threshold=None, fields=fits)
    text = '{"l": [{"n": 1, "m": 2, "s": "x"}], "l2": 3}'
    found = fields([*text], [-1.0] * len(text), calibration=calibration)
    told = {pointer: field.probability for pointer, field in found.items()}
    expected = {"": 0.3, "/l": None, "/l/0": None, "/l/0/n": 0.1, "/l/0/m": 0.2, "/l/0/s": None}
    assert told == expected | {"/l2": 0.2}
    assert calibration.probability(-1.0) is None
    assert found["/l/0/n"].abstained is None


def test_below_the_threshold_a_value_is_null_where_that_is_valid_and_marked_elsewhere() -> None:
    fits = {name: fit(0.5, threshold=THRESHOLD) for name in ("integer", "string")}
    calibration = made(map=None, threshold=None, fields=fits)
    expression = r'\{"a": (null|"[é]*"), "b": (null|-?[0-9]+), "c": -?[0-9]+, "d": (null|[0-9]+)\}'
    text = '{"a": "éé", "b": 12, "c": 13, "d": 14}'
    logprobs = np.where(np.arange(len(text)) < text.index('"d"'), -9.0, -0.1).tolist()
    found = fields([*text], logprobs, calibration=calibration, expression=expression)
    assert {name: one.value for name, one in found.items() if one.is_leaf} == {
        "/a": None, "/b": None, "/c": 13, "/d": 14
    }  # fmt: skip
    assert [one.abstained for one in found.values()] == [None, True, True, True, False]
    [top] = fields(["12"], [-9.0], calibration=calibration, expression="(null|[0-9]+)").values()
    assert top.value is None
