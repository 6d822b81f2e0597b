"""What a stream shows of a response that is written block by block."""

import numpy as np
import pytest

from dise_core import (
    LLM,
    Attention,
    Bidirectional,
    BlockCausal,
    Canvas,
    CanvasUpdate,
    Read,
    RequestOutput,
    SamplingParams,
    TokenLogProbs,
)
from dise_core.testing import ToyPredictor
from dise_core.testing.toy_model import END, MASK
from dise_core.writing.canvas import CanvasStream
from tests.streamed import parted


def streamed(**settings: object) -> tuple[list[CanvasUpdate], RequestOutput]:
    llm = LLM(ToyPredictor(attention=BlockCausal(4)))
    return parted(llm.stream("abc", SamplingParams(**{"max_tokens": 18, **settings})))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("attention", "length", "sizes"),
    [
        (BlockCausal(4), "fixed", {1, 5, 9, 13, 17, 18}),
        (BlockCausal(4), "until-end", {1, 5, 9, 13, 17, 18}),
        (Bidirectional(), "fixed", {18}),
    ],
)
def test_a_canvas_shows_every_token_once_and_forgets_nothing(
    attention: Attention, length: str, sizes: set[int]
) -> None:
    llm = LLM(ToyPredictor(attention=attention))
    params = SamplingParams(
        max_tokens=18, block_length=4, length=length, temperature=1.0, seed=1, n=2
    )
    updates, answer = parted(llm.stream("abc", params))
    for output in answer.outputs:
        ids, canvas = output.token_ids, [MASK] * 18
        mine = [update for update in updates if update.index == output.index]
        assert [update.is_fresh for update in mine] == [True] + [False] * (len(mine) - 1)
        assert {update.num_tokens for update in mine} <= sizes
        for update in mine:
            for place, token_id, text, is_end in update.committed:
                assert canvas[place] == MASK
                assert text == llm.predictor.tokenizer.token_text(token_id)
                assert is_end == (token_id == END)
                canvas[place] = token_id
            assert output.text.startswith(update.settled)
        known = [(c, t) for c, t in zip(canvas, ids, strict=False) if c != MASK]
        assert len(known) > len(ids) - 5
        assert all(c == t for c, t in known)


def test_a_blocks_log_probabilities_come_once_it_is_finished_and_are_final() -> None:
    updates, answer = streamed(length="fixed", selector="response")
    scored = [(update.num_tokens, position) for update in updates for position, _ in update.scored]
    assert [position for _, position in scored] == list(range(13))
    for num_tokens, position in scored:
        assert position + 3 < (num_tokens + 3 - 1) // 4 * 4, "it is a block before the last"
    for update in updates:
        for position, logprob in update.scored:
            assert logprob == pytest.approx(answer.outputs[0].tokens[position].logprob, abs=1e-6)


@pytest.mark.parametrize(
    ("attention", "cfg_scale"), [(Bidirectional(), 0.0), (BlockCausal(4), 1.0)]
)
def test_full_attention_and_guidance_leave_the_scores_to_the_end(
    attention: Attention, cfg_scale: float
) -> None:
    params = SamplingParams(max_tokens=8, cfg_scale=cfg_scale, length="fixed")
    updates, _ = parted(LLM(ToyPredictor(attention=attention)).stream("abc", params))
    assert not any(update.scored for update in updates)


def test_a_block_of_an_editor_settles_at_its_end() -> None:
    sampler = {"threshold": 0.3, "editing_threshold": 0.0}
    edited = 0
    for seed in range(3):
        updates, answer = streamed(
            unmasking="llada2-editing", unmasking_settings=sampler, seed=seed, length="fixed"
        )
        edited += sum(update.is_fresh for update in updates) - 1
        text, shown = answer.outputs[0].text, [update.settled for update in updates]
        assert all(text.startswith(part) for part in shown)
        assert shown == sorted(shown, key=len)
        assert any(shown)
        for update, part in zip(updates, shown, strict=True):
            finished = (update.num_tokens + 3 - 1) // 4 * 4 - 3
            assert len(part) <= max(finished, 0)
    assert edited, "a test without an edit tests nothing"


def test_a_fresh_canvas_tells_again_what_is_known() -> None:
    canvases = CanvasStream(ToyPredictor(attention=BlockCausal(2)))
    known = np.array([-0.1, -0.2, np.nan, np.nan], np.float32)

    def shown(ids: list[int]) -> CanvasUpdate:
        canvas = Canvas(0, 0, logprobs=known)
        read = Read(np.array(ids), np.array([3]), TokenLogProbs(np.array([1])), canvas=canvas)
        [update] = canvases.updates([read])
        return update

    told = [(at, pytest.approx(p)) for at, p in ((0, -0.1), (1, -0.2))]
    first, second, again = shown([1, 2, 3, MASK]), shown([1, 2, 3, 4]), shown([1, 2, MASK, 4])
    assert [update.is_fresh for update in (first, second, again)] == [True, False, True]
    assert [list(update.scored) for update in (first, second, again)] == [told, [], told]
