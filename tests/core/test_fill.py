"""Gaps in a text: what fills one depends on both sides, and what follows it is no response."""

import re

import numpy as np
import pytest

from dise_core import (
    LLM,
    InputError,
    PluginError,
    RequestOutput,
    SamplingParams,
    Selector,
    TokenSequence,
)
from dise_core.arrays import Ids, Mask
from dise_core.plugins.discovery import installed_catalog
from dise_core.scoring.contract import CheckedSelector
from dise_core.testing import ToyPredictor
from dise_core.testing.toy_model import END, MASK, SPECIAL, VOCAB_SIZE, Logits
from tests.laws.generators import POLICIES
from tests.streamed import parted

SCORERS = sorted(set(installed_catalog().scorers) - {"ar-perplexity", "loo"})
PREFIX, SUFFIX = "bad", "face"


class Alphabet(ToyPredictor):
    """Counts through the alphabet from the left of a gap and back from its right: it is sure where
    both agree, follows the right where they do not, and would rather end than any of that.
    """

    def logits(self, ids: Ids) -> Logits:
        logits = np.zeros((len(ids), VOCAB_SIZE))
        known = np.flatnonzero(ids != MASK)
        for at in range(len(ids)):
            left, right = known[known < at], known[known > at]
            if len(left) and len(right):
                ahead, back = ids[left[-1]] + at - left[-1], ids[right[0]] - (right[0] - at)
                logits[at, back % 10] = 9 if ahead == back else 2
        logits[:, END] = 12 * (ids == MASK)
        return logits


def filled(model: ToyPredictor, prefix: str, suffix: str, **params: object) -> RequestOutput:
    [answer] = LLM(model).fill(prefix, suffix, SamplingParams.model_validate(params))
    return answer


@pytest.mark.parametrize(("suffix", "gap"), [("e", "bcd"), ("f", "cde"), ("ea", "bcd")])
def test_what_fills_a_gap_depends_on_what_follows(suffix: str, gap: str) -> None:
    answer = filled(Alphabet(), "a", suffix, max_tokens=3)
    [output] = answer.outputs
    assert (output.text, len(output.token_ids), output.finish_reason) == (gap, 3, "length")
    assert (answer.prompt, answer.suffix, answer.to_dict()["suffix"]) == ("a", suffix, suffix)
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (1 + len(suffix), 3)


@pytest.mark.parametrize(("suffix", "gap"), [("e", "bcd"), ("h", "bcdefg")])
def test_the_length_of_a_gap_is_found(suffix: str, gap: str) -> None:
    settings = {"start": 5}
    answer = filled(Alphabet(), "a", suffix, max_tokens=12, length="cal", length_settings=settings)
    [output] = answer.outputs
    assert output.text == gap
    best = max(output.trace, key=lambda step: step.score)
    assert best.num_tokens == len(gap)


@pytest.mark.parametrize(("settings", "floor"), [({}, 1), ({"background": [0, 0, 0, 0, 2]}, 2)])
def test_lengths_of_a_gap_are_compared_by_their_mean_probability_unless_b_is_given(
    settings: dict[str, object], floor: float
) -> None:
    model, more = ToyPredictor(), {"length": "cal", "length_settings": settings}
    [output] = filled(model, PREFIX, SUFFIX, max_tokens=9, **more).outputs
    sides = [model.tokenizer.encode(text) for text in (PREFIX, SUFFIX)]
    assert len(output.trace) > 5
    for step in output.trace:
        logits = model.logits(np.array([*sides[0], *[MASK] * step.num_tokens, *sides[1]]))
        chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        chances[:, [MASK, END]] = 0
        phi = chances[3 : 3 + step.num_tokens].max(axis=1).mean()
        assert step.score == pytest.approx(phi / floor, rel=1e-5)


def test_the_score_and_the_tokens_are_those_of_the_gap_in_the_whole_text() -> None:
    model = ToyPredictor()
    [output] = filled(model, PREFIX, SUFFIX, max_tokens=4, selector="response").outputs
    ids = np.concatenate(
        [model.tokenizer.encode(PREFIX), output.token_ids, model.tokenizer.encode(SUFFIX)]
    )
    logits = model.logits(ids)
    logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    naive = [logprobs[at, ids[at]] for at in range(3, 7)]
    assert output.score.value == pytest.approx(np.mean(naive), abs=1e-6)
    assert output.score.positions.tolist() == [3, 4, 5, 6]
    assert [token.logprob for token in output.tokens] == pytest.approx(naive, abs=1e-6)
    assert all(token.selected for token in output.tokens)
    assert END not in output.token_ids


@pytest.mark.parametrize("scorer", SCORERS)
def test_a_scorer_reads_the_whole_text_and_hides_nothing_around_the_gap(scorer: str) -> None:
    model = ToyPredictor()
    [output] = filled(model, PREFIX, SUFFIX, max_tokens=4, scorer=scorer).outputs
    assert np.isfinite(output.score.value)
    assert set(output.score.positions.tolist()) <= {3, 4, 5, 6}
    for ids in (ids for batch in model.batches for ids in batch):
        assert model.tokenizer.decode(ids[:3]) == PREFIX
        assert model.tokenizer.decode(ids[7:]) == SUFFIX
        assert len(ids) == 11


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("more", [{}, {"block_length": 2, "cache": "dual"}, {"reviser": "remask"}])
def test_what_stands_around_a_gap_stays(policy: str, more: dict[str, object]) -> None:
    params = {"max_tokens": 5, "unmasking": policy, "temperature": 1, "seed": 3, **more}
    [output] = filled(ToyPredictor(), PREFIX, SUFFIX, **params).outputs
    assert output.writing is not None
    steps = output.writing.steps
    assert len(output.token_ids) == 5
    assert (steps[:3] == -1).all()
    assert (steps[3:8] >= 0).all()
    assert (steps[8:] == -1).all()
    assert output.writing.ids[8:].tolist() == [5, 0, 2, 4]


def test_a_gap_under_a_constraint_is_revised() -> None:
    form = {"constraint": "regex", "constraint_settings": {"regex": "[a-c]{5}"}}
    doubts = {"reviser": "remask", "reviser_settings": {"threshold": 1, "rounds": 2}}
    params = {"max_tokens": 5, "temperature": 1, "seed": 3, **form, **doubts}
    [output] = filled(ToyPredictor(), PREFIX, SUFFIX, **params).outputs
    assert output.revisions
    assert re.fullmatch("[a-c]{5}", output.text)
    assert output.writing is not None
    assert output.writing.ids[8:].tolist() == [5, 0, 2, 4]


def test_several_answers_fill_a_gap() -> None:
    drawn = {"max_tokens": 4, "temperature": 2, "seed": 0}
    answer = filled(ToyPredictor(), PREFIX, SUFFIX, n=2, best_of=3, **drawn)
    assert [len(output.token_ids) for output in answer.outputs] == [4, 4]


def test_a_stream_shows_the_gap_alone() -> None:
    params = SamplingParams(max_tokens=8, length="cal")
    updates, _ = parted(LLM(Alphabet()).stream("a", params, suffix="e"))
    assert updates
    for update in updates:
        assert update.num_tokens <= 8
        assert all(token.position < 8 for token in update.committed)


def test_a_gap_may_begin_the_text_and_its_sides_may_be_token_ids() -> None:
    params = SamplingParams(max_tokens=3)
    first, second = LLM(Alphabet()).fill(["", [0]], ["ea", [4]], params)
    assert (first.prompt, len(first.outputs[0].token_ids)) == ("", 3)
    assert (second.prompt, second.suffix, second.outputs[0].text) == (None, None, "bcd")


def test_a_selector_of_what_follows_is_named() -> None:
    class Everything(Selector):
        def select(self, sequence: TokenSequence) -> Mask:
            return sequence.mask_of(slice(None))

    text = TokenSequence(np.arange(5), 2, SPECIAL, suffix_length=1)
    with pytest.raises(PluginError, match=r"Everything .* no position of what follows"):
        CheckedSelector(inner=Everything()).select(text)


def test_a_text_with_a_suffix_ends_nowhere() -> None:
    text = TokenSequence(np.arange(5), 2, SPECIAL, suffix_length=2)
    assert text.ended(END) is text
    assert (text.response.tolist(), text.suffix.tolist()) == ([2], [3, 4])
    with pytest.raises(InputError, match=r"prompt_length 4 is outside 0\.\.3"):
        TokenSequence(np.arange(5), 4, SPECIAL, suffix_length=2)
