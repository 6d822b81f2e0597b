"""What a stream shows of a response that is written block by block."""

import numpy as np
import pytest

from dise_core import (
    LLM,
    BlockCausal,
    Canvas,
    CanvasUpdate,
    Read,
    RequestOutput,
    SamplingParams,
    TokenLogProbs,
)
from dise_core.canvas import Canvases
from dise_core.testing import ToyPredictor
from dise_core.testing.toy_model import MASK


def streamed(**settings: object) -> tuple[list[CanvasUpdate], RequestOutput]:
    llm = LLM(ToyPredictor(attention=BlockCausal(4)))
    *updates, answer = llm.stream("abc", SamplingParams(**{"max_tokens": 18, **settings}))  # type: ignore[arg-type]
    assert isinstance(answer, RequestOutput)
    return [update for update in updates if isinstance(update, CanvasUpdate)], answer


@pytest.mark.parametrize("length", ["fixed", "until-end"])
def test_a_canvas_grows_by_blocks_and_forgets_nothing(length: str) -> None:
    updates, answer = streamed(length=length, temperature=1.0, seed=1)
    ids, canvas = answer.outputs[0].token_ids, [MASK] * 18
    assert [update.is_fresh for update in updates] == [True] + [False] * (len(updates) - 1)
    assert {update.num_tokens for update in updates} <= {1, 5, 9, 13, 17, 18}
    for update in updates:
        for token in update.committed:
            assert canvas[token.position] == MASK
            canvas[token.position] = token.id
        assert answer.outputs[0].text.startswith(update.settled)
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


def test_a_full_attention_model_scores_nothing_before_the_end() -> None:
    *updates, _ = LLM(ToyPredictor()).stream("abc", SamplingParams(max_tokens=8))
    assert not any(update.scored for update in updates if isinstance(update, CanvasUpdate))


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


def test_guidance_leaves_the_scores_to_the_end() -> None:
    updates, answer = streamed(cfg_scale=1.0, length="fixed")
    assert not any(update.scored for update in updates)
    assert np.isfinite(answer.outputs[0].score.value)


def test_a_fresh_canvas_tells_again_what_is_known() -> None:
    canvases = Canvases(ToyPredictor(attention=BlockCausal(2)))
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
