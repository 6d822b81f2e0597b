"""Where tokens lead from each state, beside walking them one by one; and what that may take."""

from __future__ import annotations

import itertools
import random
from functools import lru_cache

import pytest

from dise_core import LLM, SamplingParams
from dise_core.constraints import ways
from dise_core.constraints.building import Stop, StoppedError
from dise_core.errors import InputError
from dise_core.plugins.discovery import installed_catalog
from dise_core.plugins.kinds import CONSTRAINT
from dise_core.testing import ToyPredictor
from dise_core.testing.toy_model import END
from tests.word_tokens import WordTokenizer, tokens_of

LETTERS = "abcdefghijklmnopqrstuvwxyz "


@lru_cache
def large() -> WordTokenizer:
    """Return a tokenizer of 126,464 tokens: every byte, random words, two special ones."""
    rng, words = random.Random(0), {bytes([byte]) for byte in range(1, 256)}
    while len(words) < 126_462:
        words.add("".join(rng.choices(LETTERS, k=rng.randint(2, 9))).encode())
    return WordTokenizer(sorted(words))


@pytest.mark.parametrize("expression", ["a(b|1){0,3}1", "(ab|a1b|aab)", "[ab]{0,5}", "é?.[^a]"])
@pytest.mark.parametrize("drops_first_space", [False, True])
def test_the_ways_on_are_those_of_tokens_walked_one_by_one(
    expression: str, drops_first_space: bool
) -> None:
    texts = ("".join(text) for n in (1, 2, 3) for text in itertools.product(" ab1é", repeat=n))
    words = WordTokenizer([*(text.encode() for text in texts), "é".encode()[:1]], drops_first_space)
    tokens = tokens_of(expression, words)
    found, walked = tokens.ways, set()
    assert found is not None
    for state, token in itertools.product(range(tokens.num_states), range(words.end)):
        now = state
        for byte in words.words[token]:
            now = int(tokens._next[now, byte])
        walked |= {(state, now, token)} if now != tokens.dead else set()
    walked |= {(int(s), tokens.end, words.end) for s in tokens.accepting.nonzero()[0]}
    several = zip(found.sources, found.targets, found.numbers, strict=True)
    told = [(s, t, token) for s, t, number in several for token in found.groups[number]]
    assert len(told) == len(walked)
    assert {tuple(map(int, one)) for one in told} == walked


def test_fields_of_a_hundred_characters_and_many_phrases_are_told() -> None:
    fields = {
        "name": {"type": "string", "maxLength": 100},
        "age": {"type": "integer"},
        "town": {"type": "string", "maxLength": 100},
    }
    schema = {"type": "object", "properties": fields, "required": [*fields]}
    settings = {"constraint": "json-schema", "constraint_settings": {"schema": schema}}
    constraint = installed_catalog().chosen(CONSTRAINT, SamplingParams.model_validate(settings))
    assert constraint is not None
    rng = random.Random(1)
    phrases = "|".join("".join(rng.choices(LETTERS, k=20)) for _ in range(800))
    for expression in (constraint.expression(), phrases, "[0-9]{1,5}"):
        assert tokens_of(expression, large()).ways is not None


def test_work_that_leads_nowhere_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    words = WordTokenizer([*(f" {a}{b}".encode() for a in "ab" for b in "ab"), b" ", b"a", b"b"])
    tokens = tokens_of("( [ab]){1,300}", words)
    monkeypatch.setattr(ways, "MAX_WORK", 100)
    monkeypatch.setattr(ways, "WAY", 0)
    assert tokens.ways is None


def test_what_takes_too_much_is_not_told() -> None:
    rng = random.Random(2)
    varied = "".join(f"[{''.join(rng.sample(LETTERS, 20))}]" for _ in range(300))
    assert tokens_of(varied, large()).ways is None
    spaces = WordTokenizer([b" " * length for length in range(1, 65)])
    assert tokens_of(" {1,18000}", spaces).ways is None


def test_finding_ways_ends_as_soon_as_it_is_stopped() -> None:
    stop, tokens = Stop(), tokens_of("[ab]{1,5}", WordTokenizer([b"a", b"b"]))
    stop.set()
    with pytest.raises(StoppedError):
        tokens.find_ways(stop)
    assert not tokens.knows_ways
    assert tokens.ways is not None


def test_the_empty_text_alone_has_no_ways_where_no_end_may_be_written() -> None:
    asked = {"constraint": "regex", "constraint_settings": {"regex": ""}, "max_tokens": 8}
    for more in ({"unmasking_settings": {"logits_eos_inf": True}}, {"forbidden_token_ids": (END,)}):
        params = SamplingParams.model_validate({**asked, **more})
        with pytest.raises(InputError, match="no answer of 8 tokens meets the constraint"):
            LLM(ToyPredictor()).generate([[4, 5]], params)
