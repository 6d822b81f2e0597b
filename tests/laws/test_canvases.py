"""What canvases promise: they count from the prompt's end, and a finished one is finished."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dise_core import (
    LLM,
    Candidates,
    Canvases,
    CanvasUpdate,
    Guidance,
    Ids,
    InputError,
    ModelInfo,
    Noise,
    Read,
    Reading,
    SamplingParams,
    ScoringParams,
    SpecialTokens,
    TokenLogProbs,
    completed,
    noise_levels,
)
from dise_core.blocks import BlockGrid
from dise_core.errors import PlanError, TooLongError
from dise_core.plans.reading import CacheHint, CacheSlot
from dise_core.testing import ToyPredictor, check_mask_predictor, check_scorer
from dise_core.testing.toy_model import END, VOCAB_SIZE
from dise_strategies.scorers.dise import DiSE
from dise_strategies.scorers.interleaved import InterleavedRegeneration
from tests.laws.generators import token_ids

FILL, PROMPT = 9, [1, 2, 3]
SPECIAL = SpecialTokens(None, frozenset({END}), END)


def info_of(length: int, fill_id: int | None = FILL, **more: Any) -> ModelInfo:
    attention = Canvases(length)
    return ModelInfo(
        "mine", VOCAB_SIZE, 40, SPECIAL, attention, noise="uniform", fill_id=fill_id, **more
    )


class Canvased(ToyPredictor):
    """A toy of canvases under uniform noise, which keeps the Reads that it gets."""

    def __init__(self, length: int = 4, fill_id: int | None = FILL) -> None:
        super().__init__(attention=Canvases(length))
        self.info, self.reads = info_of(length, fill_id), list[Read]()

    def read(self, reads: Any) -> list[Reading]:
        self.reads += reads
        return super().read(reads)


def naive(text: Ids, position: int, start: int, length: int) -> float:
    """Return log p of a finished text's own token, the toy's attention written out: of the
    text only what ends with the position's canvas, which sees all of that.
    """
    toy, first = ToyPredictor(), start + (position - start) // length * length
    ids = text[: first + length]
    embedded, places = toy._embedding[ids], toy._positions[: len(ids)]
    context = np.tanh(embedded * places).mean(axis=0)
    row = (np.tanh(embedded + places + 3 * context) @ toy._head)[position]
    return float(row[text[position]] - np.logaddexp.reduce(row))


def finished(ids: list[int], start: int, length: int) -> Ids:
    """Return the text up to its canvas's border, its end read and filled behind."""
    text = ids if ids[-1] == END else [*ids, END]
    return np.array(text + [FILL] * ((start - len(text)) % length))


def test_the_kit_passes_toys_of_canvases() -> None:
    check_mask_predictor(ToyPredictor(attention=Canvases(4)))
    check_mask_predictor(Canvased())
    for scorer in (DiSE(), InterleavedRegeneration(k=2)):
        check_scorer(scorer, Canvased(), tolerance=1e-6)


class FromTheText(Canvased):
    """Counts its canvases from the text's start, whatever the Read says."""

    def read(self, reads: Any) -> list[Reading]:
        return super().read([replace(read, start=0) for read in reads])


class Unfinished(Canvased):
    """Reads canvases after what is hidden in earlier ones."""

    def read(self, reads: Any) -> list[Reading]:
        return super().read([replace(read, context_ids=None) for read in reads])


def test_the_kit_finds_canvases_that_are_read_wrongly() -> None:
    for mutant in (FromTheText(), Unfinished()):
        with pytest.raises(AssertionError, match="read after the finished ones before it"):
            check_mask_predictor(mutant)


@given(st.integers(1, 5), st.lists(token_ids, min_size=2, max_size=24), st.data())
def test_the_score_is_that_of_each_canvas_after_the_finished_text(
    length: int, ids: list[int], data: st.DataObject
) -> None:
    """The end is read and never selected; what fills the canvas is neither."""
    start, toy = data.draw(st.integers(0, len(ids) - 1)), Canvased(length)
    params = ScoringParams(selector="response")
    [answer] = LLM(toy).score([ids[:start]], [ids[start:]], params, finished=True)
    text = finished(ids, start, length)
    expected = [naive(text, at, start, length) for at in range(start, len(ids))]
    [output] = answer.outputs
    assert output.score.value == pytest.approx(np.mean(expected), abs=1e-5)
    assert [token.logprob for token in output.tokens] == pytest.approx(expected, abs=1e-5)
    assert {read.start for read in toy.reads} == {start}
    assert {len(read.token_ids) for read in toy.reads} == {len(text)}
    assert max(read.positions.max() for read in toy.reads) < len(ids)


def test_text_after_a_canvas_never_changes_its_score_and_the_prompt_moves_its_border() -> None:
    toy, ids = Canvased(), np.random.default_rng(0).integers(0, 9, 24)

    def own(text: Ids, start: int) -> Ids:
        positions = np.arange(start, len(text))
        targets = TokenLogProbs(text[positions])
        return toy.read([Read(text, positions, targets, start=start)])[0].logprobs

    np.testing.assert_allclose(own(ids[:11], 3), own(ids, 3)[:8], atol=1e-6)
    assert abs(own(ids[:10], 3)[4:7] - own(ids, 3)[4:7]).min() > 1e-4  # cut inside a canvas
    assert abs(own(ids, 3)[1:] - own(ids, 4)).min() > 1e-4


@pytest.mark.parametrize(
    ("ids", "start", "fill_id", "more"),
    [
        ([1, 2, 3, 4, 5], 3, FILL, [END, FILL]),
        ([1, 2, 3, 4, END], 3, FILL, [FILL, FILL]),
        ([1, 2, 3, END, FILL], 3, FILL, [FILL, FILL]),
        ([1, 2, 3, 4, 5], 3, None, [END, END]),
        ([1, 2, 3, 4, 5, 6, 7], 3, FILL, []),
        ([1, 2, 3], 3, FILL, []),
        ([1, END, 3, 4], 2, FILL, [END, FILL]),
    ],
)
def test_an_end_and_then_fills_complete_a_canvas(
    ids: list[int], start: int, fill_id: int | None, more: list[int]
) -> None:
    text, info = np.array(ids), info_of(4, fill_id)
    read = completed(Read(text, text[:0], TokenLogProbs(text[:0]), start=start), info)
    assert read.token_ids.tolist() == ids + more
    assert read.context_ids is not None
    assert read.context_ids.tolist() == ids + more
    assert completed(read, info).token_ids.tolist() == ids + more
    whole = completed(Read(text, text[:0], TokenLogProbs(text[:0]), is_complete=True), info)
    assert whole.token_ids.tolist() == ids


def test_a_hidden_end_still_ends_the_text() -> None:
    """What follows is told by the finished text, not by the one with drawn tokens."""
    text, hidden = np.array([1, 2, 3, 4, END]), np.array([1, 2, 3, 4, VOCAB_SIZE])
    read = Read(hidden, text[:0], TokenLogProbs(text[:0]), context_ids=text, start=3)
    assert completed(read, info_of(4)).token_ids[5:].tolist() == [FILL, FILL]


def test_the_time_is_not_told_and_a_hint_kept() -> None:
    ids = np.array([1, 2, VOCAB_SIZE, VOCAB_SIZE])
    guidance = Guidance(np.full(4, VOCAB_SIZE), 1.0, np.array([VOCAB_SIZE] * 2 + [3, 4]))
    read = Read(ids, ids[:0], TokenLogProbs(ids[:0]), noise=0.5, start=2)
    hint = CacheHint(CacheSlot(), (2, 4))
    cached = completed(replace(read, cache=hint), info_of(4))
    assert (cached.noise, len(cached.token_ids)) == (None, 6)
    assert cached.cache == replace(hint, window=(2, 6))
    guided = replace(read, context_ids=np.array([1, 2, 3, 4]), guidance=guidance)
    guided = completed(guided, info_of(4))
    drawn = (Noise(0).uniforms(np.arange(4), purpose=2) * VOCAB_SIZE).astype(int)
    assert guided.token_ids[:4].tolist() == [1, 2, *drawn[2:]]
    assert guided.guidance is not None
    assert guided.guidance.context_ids is not None
    assert guided.guidance.token_ids[:4].tolist() == drawn.tolist()
    assert guided.guidance.context_ids[:4].tolist() == [*drawn[:2], 3, 4]


def test_a_canvas_whose_model_is_told_has_a_level_of_its_own() -> None:
    ids = np.array([1, 2, 3, VOCAB_SIZE, 5, VOCAB_SIZE, VOCAB_SIZE])
    info = info_of(2, is_time_conditioned=True)
    read = Read(ids, ids[:0], TokenLogProbs(ids[:0]), start=3)
    assert noise_levels(read, info).tolist() == [0.0, 0.0, 0.0, 0.5, 0.5, 1.0, 1.0]


def test_a_canvas_is_written_like_a_block_and_its_score_told_when_it_is_final() -> None:
    toy, prompt = Canvased(), [1, 2, 3]
    params = SamplingParams(max_tokens=11, length="fixed", seed=3)
    *updates, answer = LLM(toy).stream(prompt, params)
    [output] = answer.outputs  # type: ignore[union-attr]
    told = [dict(each.scored) for each in updates if isinstance(each, CanvasUpdate) and each.scored]
    canvases = (0, 1, 2, 3), (4, 5, 6, 7)  # or both: a step that hides tokens is a fresh start
    assert {tuple(sorted(scores)) for scores in told} == {*canvases, sum(canvases, ())}
    text = finished([*prompt, *output.token_ids], 3, 4)
    for position, logprob in {at: value for each in told for at, value in each.items()}.items():
        assert logprob == pytest.approx(naive(text, position + 3, 3, 4), abs=1e-5)
        assert logprob == output.tokens[position].logprob
    [again] = LLM(toy).score([prompt], [output.token_ids], ScoringParams.of(params))
    assert output.score.value == pytest.approx(again.outputs[0].score.value, abs=1e-6)
    assert {read.start for read in toy.reads} == {3}


class Pulled(Canvased):
    """Is nearly certain of each position's token, so that its steps come to an end."""

    def logits(self, ids: Ids, start: int = 0) -> Any:
        return super().logits(ids, start) + 10 * np.eye(VOCAB_SIZE)[np.arange(len(ids)) % 9]


def renoised(toy: Canvased, seed: int, steps: int, bound: float, sure: float) -> Ids:
    """Return two canvases of 4 after PROMPT, as DiffusionGemma's sampler, by a loop of its own."""
    text, step = np.array(PROMPT), 0
    noise = Noise.for_request(seed, text, 0)
    for _ in range(2):
        places, accepted, before = np.arange(len(text), len(text) + 4), dict[int, int](), None
        for left in range(steps, 0, -1):
            now = noise.at_step(step)
            fresh, uniforms = now.uniforms(places, purpose=2), now.uniforms(places)
            canvas = [accepted.get(i, int(fresh[i] * VOCAB_SIZE)) for i in range(4)]
            rows = toy.logits(np.append(text, canvas), len(PROMPT))[places]
            shares = np.exp(rows / (0.4 + 0.4 * left / steps))
            shares /= shares.sum(axis=1, keepdims=True)
            entropies = -(shares * np.log(shares)).sum(axis=1)
            accepted, spent, step = {}, 0.0, step + 1
            for i in sorted(range(4), key=lambda i: entropies[i]):
                if spent <= bound:
                    accepted[i] = int(np.argmax(shares[i].cumsum() > uniforms[i]))
                spent += entropies[i]
            likeliest = rows.argmax(axis=1).tolist()
            if likeliest == before and entropies.mean() < sure:
                break
            before = likeliest
        text = np.append(text, likeliest)
        if END in likeliest:
            return text[len(PROMPT) : len(text) - 3 + likeliest.index(END)]
    return text[len(PROMPT) :]


@pytest.mark.parametrize(
    ("kind", "bound", "sure"), [(Canvased, 0.0, 0.1), (Canvased, 1.0, 0.1), (Pulled, 0.1, 0.05)]
)
def test_canvases_are_noised_again_in_each_step_as_a_naive_loop_does(
    kind: type[Canvased], bound: float, sure: float
) -> None:
    settings = {"max_denoising_steps": 6, "entropy_bound": bound, "confidence_threshold": sure}
    texts, num_steps = [], set()
    for seed in range(8):
        toy = kind()
        params = SamplingParams(max_tokens=8, seed=seed, unmasking_settings=settings)
        [answer] = LLM(toy).generate([PROMPT], params)
        assert [*answer.outputs[0].token_ids] == renoised(kind(), seed, 6, bound, sure).tolist()
        texts.append(answer.outputs[0].token_ids)
        num_steps.add(sum(isinstance(read.readout, Candidates) for read in toy.reads))
    assert len(set(texts)) > 1
    assert (num_steps == {24}) == (kind is Canvased)  # two readouts in each of 2 x 6 steps


def test_a_step_is_read_beside_the_prediction_of_the_one_before() -> None:
    """A canvas's first step is read beside none, and texts are scored beside none."""
    toy, settings = Canvased(), {"max_denoising_steps": 3}
    params = SamplingParams(max_tokens=8, length="fixed", seed=0, unmasking_settings=settings)
    LLM(toy).generate([[1, 2]], params)
    hints = [read.cache for read in toy.reads if isinstance(read.readout, Candidates)]
    windows = [hint and hint.window for hint in hints]
    first, second = [None] * 2 + [(2, 6)] * 4, [None] * 2 + [(6, 10)] * 4
    assert windows == first + second
    assert len({hint.slot for hint in hints if hint}) == 1
    own = [read for read in toy.reads if read.positions.max() > 5 and read.cache is None]
    assert own
    assert all(isinstance(read.readout, TokenLogProbs) for read in own)


def test_a_policy_must_be_about_the_models_noise() -> None:
    kept, noised = "keeps what it has written", "puts random tokens back in every step"
    for model, unmasking, said in (
        (Canvased(), "threshold", rf"unmasking 'threshold' {kept}, .* use 'entropy-bound-renoise'"),
        (ToyPredictor(), "entropy-bound-renoise", f"{noised}, and 'toy' was trained on masks"),
    ):
        with pytest.raises(InputError, match=said):
            LLM(model).generate([[1, 2]], SamplingParams(unmasking=unmasking))
    with pytest.raises(InputError, match=r"temperature=0\.7: .* draws at temperatures of its own"):
        LLM(Canvased()).generate([[1, 2]], SamplingParams(temperature=0.7))
    with pytest.raises(InputError, match=r"steps=40: .* such as max_denoising_steps"):
        LLM(Canvased()).generate([[1, 2]], SamplingParams(steps=40))
    choice: dict[str, Any] = {
        "max_tokens": 4,
        "constraint": "choice",
        "constraint_settings": {"choices": ["a", "b"]},
    }
    with pytest.raises(InputError, match=r"constraint='choice': .* keep to no constraint"):
        LLM(Canvased()).generate([[1, 2]], SamplingParams(**choice))


@pytest.mark.parametrize("length", [4, 9])
def test_leave_one_out_counts_the_tokens_of_a_canvas_and_not_those_of_the_response(
    length: int,
) -> None:
    llm, prompt = LLM(Canvased(length)), [1, 2, 3]
    params = SamplingParams(max_tokens=7, seed=3, scorer="loo", selector="response")
    [written] = llm.generate([prompt], params)
    ids = [*written.outputs[0].token_ids]
    [given_text] = llm.score([prompt], [ids], ScoringParams.of(params))
    text, values = finished([*prompt, *ids], 3, length), []
    for position in range(3, 3 + len(ids)):
        share = np.exp(naive(text, position, 3, length))
        odds = share / (1 - share) / (1 + VOCAB_SIZE * length)
        values.append(np.log(odds / (1 + odds)))
    for answer in (written, given_text):
        assert answer.outputs[0].score.value == pytest.approx(np.mean(values), abs=1e-5)


def test_what_canvases_cannot_is_refused_by_one_sentence() -> None:
    llm = LLM(Canvased())
    params = ScoringParams(selector="full")
    with pytest.raises(InputError, match=r"'mine' predicts no token of a prompt, .*response-text"):
        llm.score([[1, 2]], [[3, 4]], params)
    with pytest.raises(InputError, match="'shadow' is about masks, and 'mine' has uniform noise"):
        llm.score([[1, 2]], [[3, 4]], ScoringParams(scorer="shadow"))
    with pytest.raises(InputError, match=r"block_length=2: 'mine' has blocks of 4 tokens"):
        llm.score([[1, 2]], [[3, 4]], ScoringParams(block_length=2))
    with pytest.raises(PlanError, match=r"canvases start in 0\.\.2, not at 3"):
        Read(np.arange(2), np.arange(1), TokenLogProbs(np.arange(1)), start=3)
    small = LLM(Canvased(), max_batch_tokens=18)
    with pytest.raises(TooLongError, match="takes 19 tokens of a batch"):  # 3 + 8 + 8
        small.score([[1, 2, 3]], [[4, 5, 6, 7, 8]])


def test_a_prompt_is_seen_by_all_and_sees_what_is_before() -> None:
    """Two tokens of prompt, canvases of three."""
    sees = Canvases(3).allows(np.arange(-2, 5), np.arange(-2, 5)).astype(int)
    assert sees.sum(axis=1).tolist() == [1, 2, 5, 5, 5, 7, 7]
    assert all(sorted(row, reverse=True) == row for row in sees.tolist())


def test_blocks_that_begin_inside_a_text_cover_what_is_before_them() -> None:
    grid = BlockGrid(4, origin=6)
    assert [*grid.spans(0, 12)] == [(0, 2), (2, 6), (6, 10), (10, 12)]
    assert [grid.start_of(position) for position in (1, 2, 9, 10)] == [0, 2, 6, 10]
