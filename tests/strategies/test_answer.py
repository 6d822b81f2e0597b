"""The selector of answers, on texts of one character a token, and beside Python's own search."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dise_core import LLM, SamplingParams, Selector, TokenSequence
from dise_core.arrays import Ids, Mask
from dise_core.plugins.discovery import installed_catalog
from dise_core.rule import TextRule
from dise_core.sequence import SpecialTokens
from tests.ascii_model import AsciiPredictor

END = 0x110000
SPECIAL = SpecialTokens(None, frozenset({END}), END)


class Json(TextRule):
    is_json = True

    def is_forced(self, response: Ids) -> Mask:
        raise NotImplementedError


def spell(ids: Ids) -> tuple[bytes, ...]:
    return tuple(b"" if i == END else chr(i).encode() for i in ids.tolist())


def text_of(response: str, prompt: str = "12 ") -> TokenSequence:
    ids = [ord(letter) for letter in response]
    prompt_ids = [ord(letter) for letter in prompt]
    return TokenSequence.of(prompt_ids, [*ids, END], SPECIAL, 8, spell=spell)


def answer(**settings: Any) -> Selector:
    return installed_catalog().selector("answer", settings)


def named(sequence: TokenSequence, **settings: Any) -> str:
    """What the selector selects of a text, in which nothing else is selected."""
    mask = answer(**settings).select(sequence)
    return "".join(chr(i) if i < END else "<end>" for i in sequence.ids[mask].tolist())


@pytest.mark.parametrize(
    ("response", "selection"),
    [
        (r"So \boxed{1}, no, \boxed{\frac{1}{2}} it is, 7", r"\frac{1}{2}"),
        (r"\boxed{3", "3"),
        (r"\boxed{} <answer> 4 + 5 </answer> 6", "4 + 5"),
        ("<answer>1</answer> <answer>22", "22"),
        ("2 + 2\n####  4 apples \nfine 9", "4 apples"),
        ("12 or -1,234.5 apples", "-1,234.5"),
        ("été ½ 日本 <answer>日本 é</answer>!", "日本 é"),
        ("no number at all", "no number at all"),
        ("", ""),
    ],
)
def test_an_answer_is_found_where_answers_usually_stand(response: str, selection: str) -> None:
    assert named(text_of(response)) == selection


@pytest.mark.parametrize(
    ("pattern", "selection"),
    [
        (r"\d+", "30"),
        (r"is (\d+)", "30"),
        (r"(\d+) of|x(y)?", "20"),
        (r"(?i)THE", "the"),
        (r"z*", "so 10, the 20 of 40: is 30."),
        (r"f*", "f"),
        (r"|[^ ]", "."),
        (r"is|(?m)^so", "is"),
        (r"0+?", "0"),
        (r"\d\d \w+|of \d+", "20 of"),
        ("never", "so 10, the 20 of 40: is 30."),
        ("[0-9 ]{3,}$|40", "40"),
    ],
)
def test_a_pattern_names_its_last_place_or_first_group(pattern: str, selection: str) -> None:
    assert named(text_of("so 10, the 20 of 40: is 30."), pattern=pattern) == selection


def test_a_pattern_of_digits_may_come_as_the_number_that_the_command_reads() -> None:
    assert named(text_of("30 or 35"), pattern=35) == "35"


def test_the_values_of_a_constraints_json_are_the_answer() -> None:
    text = text_of('{"a": "x\\"é", "b": [1.5, true, null, ""], "c": {}}')
    assert named(replace(text, rule=Json())) == 'x\\"é1.5truenull'
    assert named(replace(text, rule=Json()), pattern='"b"') == '"b"'
    assert named(replace(text_of("{}"), rule=Json())) == "{}"
    assert named(replace(text_of('{"a": 1'), rule=Json())) == "1"  # not whole, so no JSON


def test_bytes_that_are_no_text_keep_their_places() -> None:
    pieces = (b"\xff\xe6", b"\x97", b" ", b"4", b"2", b"\xc3", b"")
    text = TokenSequence(np.arange(7), 0, SPECIAL, spell=lambda _: pieces)
    assert np.flatnonzero(answer().select(text)).tolist() == [3, 4]


REPEATED = st.builds(
    "(?:{}){}".format,
    st.sampled_from(["a", "bc?", "[ab]", "a|bb", "(a)b", "(?:a|(b))c", "."]),  # not of nothing
    st.sampled_from(["*", "+", "*?", "+?", "?", "??", "{2}", "{0,2}"]),
)
PATTERNS = st.recursive(
    REPEATED | st.sampled_from([*"abc", "c(a)", r"\b", "^", "$", "", "(|b)"]),
    lambda inner: (
        st.builds("{}{}".format, inner, inner) | st.builds("(?:{}|{})".format, inner, inner)
    ),
    max_leaves=6,
)


@given(pattern=PATTERNS.filter(bool), text=st.text("abc ", min_size=1, max_size=9))
def test_one_pass_finds_what_a_search_from_match_to_match_finds(pattern: str, text: str) -> None:
    matches = list(re.finditer(pattern, text))
    spans = [match.span(min(match.re.groups, 1)) for match in matches]
    assume(
        all(match[0] for match in matches)
        and all(span[0] < span[1] for span in spans if span[0] >= 0)
    )
    places = [text[start:stop] for start, stop in spans if start >= 0]
    assert named(text_of(text), pattern=pattern) == [text, *places][-1]


def test_the_answer_is_what_a_request_is_scored_by() -> None:
    llm = LLM(AsciiPredictor())
    params = SamplingParams(
        max_tokens=12, constraint="regex", constraint_settings={"regex": r"x <answer>\d\d"},
        selector="answer",
    )  # fmt: skip
    [answered] = llm.generate("q", params)
    selected = [token.text for token in answered.outputs[0].tokens if token.selected]
    assert "".join(selected) == answered.outputs[0].text[-2:]
    schema = {"properties": {"n": {"enum": ["a", "b"]}}, "required": ["n"], "type": "object"}
    params = SamplingParams(
        max_tokens=30, constraint="json-schema", constraint_settings={"json_schema": schema},
        selector="answer",
    )  # fmt: skip
    [answered] = llm.generate("q", params)
    output = answered.outputs[0]
    selected = [token.text for token in output.tokens if token.selected]
    assert "".join(selected) == output.fields["/n"].value
