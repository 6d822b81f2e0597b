"""What a text tells of how it was written, as it is cut, grown, changed and written on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dise_core import (
    LLM,
    BlockCausal,
    Denoiser,
    Generation,
    InputError,
    Plan,
    Reviser,
    Revision,
    SamplingParams,
    SequenceScorer,
    TokenSequence,
    rewritten,
)
from dise_core.history import Writing
from dise_core.testing import ToyPredictor
from tests.guests import with_guests
from tests.streamed import parted

ids = st.lists(st.integers(0, 3), min_size=1, max_size=8)


@st.composite
def writings(draw: Any) -> Writing:
    """A text whose steps look at all open positions, and commit some."""
    text = np.array(draw(ids))
    writing = Writing.of(np.full(len(text), 9))
    draws = st.lists(st.integers(0, 3), min_size=len(text), max_size=len(text))
    for step in range(4):
        here = np.flatnonzero(writing.steps < 0)
        candidates = text[here] if step == 3 else np.array(draw(draws))[here]
        writing.see(here, {"margin": here + step / 4})
        chosen = np.flatnonzero(np.array(draw(draws))[here] == 0)
        logprobs = np.full(len(chosen), -float(step), np.float32)
        writing.commit(step, here[chosen], candidates[chosen], logprobs)
    is_forced = np.array(draw(draws)) == 0
    writing.force(slice(0, len(text)), is_forced)
    return writing


def columns(writing: Writing) -> np.ndarray:
    """All that it tells, a row for each token."""
    told = writing.logprobs, writing.steps, writing.forced, writing.confidence("margin")
    return np.array(told, np.float64).T


@given(writings(), st.data())
def test_tokens_take_along_what_is_told_of_them_wherever_they_go(
    writing: Writing, data: st.DataObject
) -> None:
    everywhere, now = np.arange(len(writing.ids)), columns(writing)
    steps = np.where(writing.steps < 0, np.nan, writing.steps)
    np.testing.assert_array_equal(writing.confidence("margin"), everywhere + steps / 4)
    assert np.isnan(writing.confidence("entropy")).all()
    kept = np.flatnonzero(data.draw(st.lists(st.booleans(), min_size=len(now), max_size=len(now))))
    np.testing.assert_array_equal(columns(writing.at(kept)), now[kept])
    place = data.draw(st.integers(0, len(now)))
    longer = writing.inserted(place, np.array([7, 7]))
    assert longer.ids[place : place + 2].tolist() == [7, 7]
    assert np.isnan(longer.logprobs[place : place + 2]).all()
    rest = np.delete(np.arange(len(longer.ids)), [place, place + 1])
    np.testing.assert_array_equal(columns(longer)[rest], now)
    other = np.array(data.draw(ids))
    same = everywhere[: len(other)][writing.ids[: len(other)] == other[: len(now)]]
    onto = writing.onto(other)
    np.testing.assert_array_equal(columns(onto)[same], now[same])
    assert (onto.steps[np.setdiff1d(np.arange(len(other)), same)] == -1).all()


def test_a_text_that_was_changed_does_not_own_the_old_writing() -> None:
    [answer] = LLM(ToyPredictor()).generate("abc", SamplingParams(max_tokens=6))
    writing = answer.outputs[0].writing
    assert writing is not None
    text = TokenSequence(writing.ids.copy(), 3, writing=writing)
    assert text.own_writing() is writing
    text.ids[4] += 1
    assert text.own_writing() is None
    assert text.at(np.arange(5)).writing is None


class Replacing(Reviser):
    """Puts token 0 in the place of the response's second, and scores the text."""

    is_kept: bool = True

    def revise(
        self, generation: Generation, denoiser: Denoiser, scorer: SequenceScorer
    ) -> Plan[Generation]:
        text = generation.sequence
        changed = text.ids.copy()
        changed[text.prompt_length + 1] = 0
        assert text.writing is not None
        writing = text.writing.onto(changed) if self.is_kept else text.writing
        new = replace(text, ids=changed, writing=writing)
        places = np.array([text.prompt_length + 1])
        revision = Revision(rewritten(text, new, places), 0.0, 0.0, 0, True)
        evaluation = yield from scorer.evaluate(new)
        return replace(generation, sequence=new, evaluation=evaluation, revisions=(revision,))


@pytest.mark.parametrize("settings", [{}, {"is_kept": False}], ids=str)
@pytest.mark.parametrize("scorer", ["dise", "written"])
def test_a_revisers_own_token_is_unknown_and_the_others_are_kept(
    settings: dict[str, bool], scorer: str
) -> None:
    llm = LLM(ToyPredictor(), catalog=with_guests(revisers={"replacing": Replacing}))
    params = SamplingParams(max_tokens=6, scorer=scorer, selector="response")
    [plain] = llm.generate("abc", params)
    changes = {"reviser": "replacing", "reviser_settings": settings}
    if scorer == "written" and settings:
        with pytest.raises(InputError, match="reads how a text was written"):
            llm.generate("abc", params.model_copy(update=changes))
        return
    [answer] = llm.generate("abc", params.model_copy(update=changes))
    expected = [token.written for token in plain.outputs[0].tokens]
    expected[1] = None
    assert [token.written for token in answer.outputs[0].tokens] == expected
    if scorer == "written":
        rest = [value for value in expected if value is not None]
        assert answer.outputs[0].score.value == pytest.approx(np.mean(rest), abs=1e-6)
        assert answer.outputs[0].score.num_positions == 5


REQUESTS: list[tuple[bool, dict[str, Any]]] = [
    (False, {}),
    (False, {"length": "daedal", "length_settings": {"max_gen_length": 14}}),
    (False, {"length": "dise-flexible", "length_settings": {"max_iterations": 2}}),
    (True, {}),
    (True, {"unmasking": "llada2-editing", "unmasking_settings": {"editing_threshold": 0.1}}),
]


@pytest.mark.parametrize(("is_blocks", "more"), REQUESTS, ids=str)
def test_a_stream_tells_what_the_answer_tells(is_blocks: bool, more: dict[str, Any]) -> None:
    llm = LLM(ToyPredictor(attention=BlockCausal(4)) if is_blocks else ToyPredictor())
    params = SamplingParams(
        max_tokens=10, tokens_per_step=1, temperature=1.0, seed=5, scorer="written", **more
    )
    updates, answer = parted(llm.stream("abc", params))
    [output], told = answer.outputs, dict[int, tuple[int, float | None]]()
    for update in updates:
        told = {} if update.is_fresh else told
        for token, logprob in zip(update.committed, update.logprobs, strict=True):
            told[token.position] = token.id, logprob
    same = [
        at for at, (token_id, _) in told.items() if output.token_ids[at : at + 1] == (token_id,)
    ]
    assert len(same) >= len(told) - 2
    assert [told[at][1] for at in same] == [output.tokens[at].written for at in same]


@pytest.mark.parametrize("is_blocks", [False, True])
def test_a_rewritten_token_has_its_new_value_and_the_others_keep_theirs(is_blocks: bool) -> None:
    llm = LLM(ToyPredictor(attention=BlockCausal(4)) if is_blocks else ToyPredictor())
    params = SamplingParams(
        max_tokens=10, length="fixed", seed=3, temperature=2.0, scorer="written"
    )
    settings = {"threshold": 0.4, "max_tokens": 2, "rounds": 1, "accept": "always"}
    changes = {"reviser": "remask", "reviser_settings": settings}
    [plain], [revised] = (
        llm.generate("abc", params.model_copy(update=update)) for update in ({}, changes)
    )
    [first], [output] = plain.outputs, revised.outputs
    [revision] = output.revisions
    places = {token.position for token in revision.tokens}
    assert places
    for at, (before, after) in enumerate(zip(first.tokens, output.tokens, strict=True)):
        assert at in places or after.written == before.written
        assert after.written is not None
    assert output.score.value == pytest.approx(
        np.mean([output.tokens[at - 3].written for at in output.score.positions]), abs=1e-6
    )
