"""The samplers of block-diffusion families, token for token beside naive loops written from the
published descriptions: the whole text again in each step, and no cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from dise_core import LLM, BlockCausal, SamplingParams, UnmaskingStep
from dise_core.noise import Noise
from dise_core.testing import ToyPredictor
from dise_core.testing.toy_model import END, MASK
from dise_strategies.unmasking.blockwise import EntropyBounded, LowConfidenceDynamic, SubBlocks

PROMPTS = [np.random.default_rng(n).integers(0, 10, n).tolist() for n in (1, 4, 7, 8, 13)]


class Guess(NamedTuple):
    """What the model would write at a position of the block, counted from the block's start."""

    offset: int
    token: int
    probability: float
    entropy: float


class Model(NamedTuple):
    """What a naive loop needs of a model: its logits [N, V] for a whole text, and its tokens. end:
    the one that completes a text. ends: those that end an answer.
    """

    logits: Callable[[list[int]], np.ndarray]
    mask: int
    end: int
    ends: frozenset[int]


def toy_of(length: int) -> tuple[ToyPredictor, Model]:
    toy = ToyPredictor(max_length=80, seed=1, attention=BlockCausal(length))
    return toy, Model(lambda ids: toy.logits(np.array(ids)), MASK, END, frozenset({END}))


Rule = Callable[[list[Guess]], list[Guess]]
"""Which of the guesses at a block's masks, from left to right, a step commits."""


def guesses(model: Model, text: list[int], start: int, length: int) -> list[Guess]:
    """Return the guesses at the positions from `start` on, the last block completed by ends."""
    rows = model.logits(text + [model.end] * (-len(text) % length))
    found = []
    for position in range(start, len(text)):
        logits = rows[position].tolist()
        total = sum(math.exp(x) for x in logits)
        shares = [math.exp(x) / total for x in logits]
        token = max((t for t in range(len(shares)) if t != model.mask), key=lambda t: shares[t])
        entropy = -sum(p * math.log(p) for p in shares)
        found.append(Guess(position - start, token, shares[token], entropy))
    return found


def written(model: Model, prompt: list[int], max_tokens: int, length: int, rule: Rule) -> list[int]:
    """Return the response, written block by block until one of them holds an end token."""
    text = prompt + [model.mask] * max_tokens
    for start in range(len(prompt) // length * length, len(text), length):
        stop = min(start + length, len(text))
        while model.mask in text[start:stop]:
            all_guesses = guesses(model, text[:stop], start, length)
            for guess in rule([g for g in all_guesses if text[start + g.offset] == model.mask]):
                text[start + guess.offset] = guess.token
        if found := [i for i in range(len(prompt), stop) if text[i] in model.ends]:
            return text[len(prompt) : found[0] + 1]
    return text[len(prompt) :]


def surest(found: list[Guess]) -> list[Guess]:
    return sorted(found, key=lambda guess: -guess.probability)


def sequential(quota: int) -> Rule:
    return lambda found: found[:quota]


def static(quota: int) -> Rule:
    return lambda found: surest(found)[:quota]


def dynamic(threshold: float, quota: int) -> Rule:
    def rule(found: list[Guess]) -> list[Guess]:
        sure = [guess for guess in found if guess.probability > threshold]
        return sure if len(sure) >= quota else surest(found)[:quota]

    return rule


def entropy_bounded(bound: float) -> Rule:
    def rule(found: list[Guess]) -> list[Guess]:
        chosen, total = [], 0.0
        for guess in sorted(found, key=lambda guess: guess.entropy):
            total += guess.entropy
            if chosen and total >= bound:
                break
            chosen.append(guess)
        return chosen

    return rule


def fast_dllm_v2(threshold: float, sub_block: int) -> Rule:
    def rule(found: list[Guess]) -> list[Guess]:
        if found[0].offset == 0:
            return found[:1]
        first = found[0].offset // sub_block
        here = [guess for guess in found if guess.offset // sub_block == first]
        return list({*surest(here)[:1], *(g for g in here if g.probability > threshold)})

    return rule


def stable_diffcoder(threshold: float) -> Rule:
    def rule(found: list[Guess]) -> list[Guess]:
        best, *others = surest(found)
        return [best, *(guess for guess in others if guess.probability >= threshold)]

    return rule


CASES: list[tuple[int, dict[str, object], Rule]] = [
    (4, {"unmasking": "sequential"}, sequential(1)),
    (4, {"unmasking": "sequential", "tokens_per_step": 3}, sequential(3)),
    (4, {"unmasking": "low-confidence"}, static(1)),
    (4, {"unmasking": "low-confidence", "tokens_per_step": 2}, static(2)),
    (4, {"unmasking": "low-confidence-dynamic"}, dynamic(0.85, 1)),
    (8, {"unmasking": "low-confidence-dynamic", "tokens_per_step": 2}, dynamic(0.85, 2)),
    (4, {"unmasking": "entropy-bounded"}, entropy_bounded(0.35)),
    (8, {"unmasking": "entropy-bounded", "unmasking_settings": {"bound": 2.0}}, entropy_bounded(2)),
    (8, {"unmasking": "llada2"}, dynamic(0.95, 1)),
    (32, {"unmasking": "llada2"}, dynamic(0.95, 1)),
    (32, {"unmasking": "sub-blocks"}, fast_dllm_v2(1.0, 8)),
    (8, {"unmasking": "sub-blocks", "unmasking_settings": {"threshold": 0.6, "sub_block": 4}},
     fast_dllm_v2(0.6, 4)),
    (4, {"unmasking": "threshold", "unmasking_settings": {"threshold": 0.95}},
     stable_diffcoder(0.95)),
]  # fmt: skip


def responses(toy: ToyPredictor, settings: dict[str, object]) -> list[list[int]]:
    """Return the responses to the prompts, which are the same with a cache and without."""
    [exact, whole] = (
        [
            list(answer.outputs[0].token_ids)
            for answer in LLM(toy).generate(PROMPTS, SamplingParams(**settings, cache=cache))  # type: ignore[arg-type]
        ]
        for cache in ("exact", "none")
    )
    assert exact == whole
    return exact


@pytest.mark.parametrize("max_tokens", [20, 25])
@pytest.mark.parametrize(("length", "settings", "rule"), CASES)
def test_a_sampler_writes_what_its_published_loop_writes(
    length: int, settings: dict[str, object], rule: Rule, max_tokens: int
) -> None:
    toy, model = toy_of(length)
    found = responses(toy, {"tokens_per_step": 1, "max_tokens": max_tokens, **settings})
    assert found == [written(model, prompt, max_tokens, length, rule) for prompt in PROMPTS]


def written_with_edits(
    model: Model, prompt: list[int], max_tokens: int, length: int, settings: dict[str, float]
) -> tuple[list[int], int]:
    """Return the response that LLaDA2.1's loop writes, and how many tokens it edited."""
    text, num_edited = prompt + [model.mask] * max_tokens, 0
    for start in range(len(prompt) // length * length, len(text), length):
        stop, post_steps = min(start + length, len(text)), 0
        while True:
            old = text[start:stop]
            if model.mask not in old:
                post_steps += 1
            if post_steps > settings["max_post_steps"]:
                break
            found = guesses(model, text[:stop], start, length)
            open_ = [guess for guess in found if old[guess.offset] == model.mask]
            chosen = dynamic(settings["threshold"], 1)(open_) if open_ else []
            edited = [
                guess
                for guess in found
                if start + guess.offset >= len(prompt)
                and old[guess.offset] not in (model.mask, guess.token)
                and guess.probability > settings["editing_threshold"]
            ]
            for guess in (*chosen, *edited):
                text[start + guess.offset] = guess.token
            num_edited += len(edited)
            if not open_ and not edited:
                break
        if ends := [i for i in range(len(prompt), stop) if text[i] in model.ends]:
            return text[len(prompt) : ends[0] + 1], num_edited
    return text[len(prompt) :], num_edited


@pytest.mark.parametrize("max_tokens", [20, 25])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"threshold": 0.5, "editing_threshold": 0.3},
        {"threshold": 0.3, "editing_threshold": 0.0, "max_post_steps": 2},
        {"threshold": 0.3, "editing_threshold": 0.0, "max_post_steps": 0},
    ],
)
@pytest.mark.parametrize("length", [4, 8])
def test_llada2_editing_writes_what_its_published_loop_writes(
    length: int, settings: dict[str, float], max_tokens: int
) -> None:
    toy, model = toy_of(length)
    whole = {"threshold": 0.95, "editing_threshold": 0.9, "max_post_steps": 16, **settings}
    expected = [written_with_edits(model, prompt, max_tokens, length, whole) for prompt in PROMPTS]
    sampler: dict[str, object] = {"unmasking": "llada2-editing", "unmasking_settings": settings}
    found = responses(toy, {"tokens_per_step": 1, "max_tokens": max_tokens, **sampler})
    assert found == [text for text, _ in expected]
    assert sum(edited for _, edited in expected) or not settings, "nothing was edited"


def look(confidences: list[float], quota: int = 1, start: int = 0) -> UnmaskingStep:
    """Return a step over the positions from `start` on, of a block that begins at 0."""
    positions = np.arange(start, start + len(confidences))
    return UnmaskingStep(positions, np.array(confidences), quota, 0.5, Noise(0))


@pytest.mark.parametrize(
    ("confidences", "quota", "expected"),
    [([0.5, 0.9, 0.86], 1, [1, 2]), ([0.5, 0.9, 0.86], 3, [1, 2, 0]), ([0.5, 0.85], 1, [1])],
)
def test_dynamic_commits_all_that_are_sure_or_the_quota(
    confidences: list[float], quota: int, expected: list[int]
) -> None:
    assert LowConfidenceDynamic().choose(look(confidences, quota)).tolist() == expected


def test_entropies_add_up_to_less_than_the_bound() -> None:
    assert EntropyBounded().choose(look([-0.2, -0.1, -0.04, -0.9])).tolist() == [2, 1, 0]
    assert EntropyBounded().choose(look([-0.25, -0.1])).tolist() == [1]
    assert EntropyBounded().choose(look([-2.0, -1.0])).tolist() == [1]


def test_sub_blocks_wait_for_those_before_them() -> None:
    policy = SubBlocks(sub_block=2, threshold=0.5)
    assert policy.choose(look([0.1, 0.9, 0.9])).tolist() == [0]
    assert policy.choose(look([0.1, 0.9, 0.9], start=1)).tolist() == [0]
    assert policy.choose(look([0.6, 0.9, 0.9], start=2)).tolist() == [1, 0]
