"""The samplers of block-diffusion families, token for token beside naive loops written from the
published descriptions: the whole text again in each step, and no cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from dise_core import LLM, BlockCausal, SamplingParams, UnmaskingStep
from dise_core.model import LastBlock
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
    the one that completes a finished text. ends: those that end an answer. last: how its loop
    writes a last block that is short. is_certain: whether tokens are drawn from the top one, which
    then has the probability 1.
    """

    logits: Callable[[list[int]], np.ndarray]
    mask: int
    end: int
    ends: frozenset[int]
    last: LastBlock = "masks"
    is_certain: bool = False

    def canvas(self, prompt: list[int], max_tokens: int, length: int) -> list[int]:
        """Return the text as the loop begins it."""
        total = len(prompt) + max_tokens
        more = -total % length if self.last == "masks" else 0
        return prompt + [self.mask] * (max_tokens + more)


def toy_of(length: int, last: LastBlock = "masks") -> tuple[ToyPredictor, Model]:
    toy = ToyPredictor(max_length=80, seed=1, attention=BlockCausal(length))
    toy.info = replace(toy.info, last_block=last)
    return toy, Model(lambda ids: toy.logits(np.array(ids)), MASK, END, frozenset({END}), last)


Rule = Callable[[list[Guess]], list[Guess]]
"""Which of the guesses at a block's masks, from left to right, a step commits."""


def guesses(model: Model, text: list[int], start: int) -> list[Guess]:
    """Return the guesses at the positions from `start` on."""
    rows = model.logits(text)
    found = []
    for position in range(start, len(text)):
        logits = rows[position].tolist()
        total = sum(math.exp(x) for x in logits)
        shares = [math.exp(x) / total for x in logits]
        token = max((t for t in range(len(shares)) if t != model.mask), key=lambda t: shares[t])
        entropy = -sum(p * math.log(p) for p in shares)
        certain = (1.0, 0.0) if model.is_certain else (shares[token], entropy)
        found.append(Guess(position - start, token, *certain))
    return found


def written(
    model: Model, prompt: list[int], max_tokens: int, length: int, rule: Rule
) -> tuple[list[int], int]:
    """Return the response, written block by block until one of them holds an end token and then cut
    to max_tokens, and the number of steps.
    """
    text, num_steps, total = model.canvas(prompt, max_tokens, length), 0, len(prompt) + max_tokens
    for start in range(len(prompt) // length * length, len(text), length):
        stop = min(start + length, len(text))
        while model.mask in text[start:stop]:
            num_steps += 1
            all_guesses = guesses(model, text[:stop], start)
            for guess in rule([g for g in all_guesses if text[start + g.offset] == model.mask]):
                text[start + guess.offset] = guess.token
        if found := [i for i in range(len(prompt), stop) if text[i] in model.ends]:
            return text[len(prompt) : min(found[0] + 1, total)], num_steps
    return text[len(prompt) : total], num_steps


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


def responses(
    toy: ToyPredictor, settings: dict[str, object], prompts: list[list[int]] = PROMPTS
) -> list[tuple[list[int], int]]:
    """Return the responses to the prompts and the passes of each, with DiSE of every token; the
    same with a cache and without.
    """
    [exact, whole] = (
        [
            (list(answer.outputs[0].token_ids), answer.usage.nfe)
            for answer in LLM(toy).generate(
                prompts,
                SamplingParams(**settings, cache=cache, selector="response"),  # type: ignore[arg-type]
            )
        ]
        for cache in ("exact", "none")
    )
    assert exact == whole
    return exact


def published_passes(prompt: list[int], text: list[int], steps: int, length: int) -> int:
    """Return the passes of a loop that keeps keys: one over the prompt's whole blocks, its steps,
    and one over each finished block. LLaDA2.0's keeps none: its passes are its steps.
    """
    first = len(prompt) // length
    return (first > 0) + steps - (-(len(prompt) + len(text)) // length) - first


@pytest.mark.parametrize("last", ["masks", "alone"])
@pytest.mark.parametrize("max_tokens", [20, 25])
@pytest.mark.parametrize(("length", "settings", "rule"), CASES)
def test_a_sampler_writes_what_its_published_loop_writes(
    length: int, settings: dict[str, object], rule: Rule, max_tokens: int, last: LastBlock
) -> None:
    toy, model = toy_of(length, last)
    found = responses(toy, {"tokens_per_step": 1, "max_tokens": max_tokens, **settings})
    for prompt, (ids, num_passes) in zip(PROMPTS, found, strict=True):
        expected, num_steps = written(model, prompt, max_tokens, length, rule)
        assert ids == expected
        # Fewer where nothing behind the answer's end is written.
        is_cut = last == "masks" and (len(prompt) + max_tokens) % length > 0
        assert num_passes <= num_steps + 1
        assert num_passes == num_steps + 1 or ids[-1] == model.end or is_cut
        if settings["unmasking"] != "llada2":
            assert num_passes <= published_passes(prompt, ids, num_steps, length)


def written_with_edits(
    model: Model, prompt: list[int], max_tokens: int, length: int, settings: dict[str, float]
) -> tuple[list[int], int, int, bool]:
    """Return the response that LLaDA2.1's loop writes, how many tokens it edited, its steps, and
    whether its last step, which changed nothing, saw the answer as it is: its block completed by
    end tokens.
    """
    text, num_edited, num_steps, is_calm = model.canvas(prompt, max_tokens, length), 0, 0, False
    total = len(prompt) + max_tokens
    for start in range(len(prompt) // length * length, len(text), length):
        stop, post_steps = min(start + length, len(text)), 0
        while True:
            old = text[start:stop]
            if model.mask not in old:
                post_steps += 1
            is_calm = False
            if post_steps > settings["max_post_steps"]:
                break
            num_steps += 1
            found = guesses(model, text[:stop], start)
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
                is_calm = True
                break
        if ends := [i for i in range(len(prompt), stop) if text[i] in model.ends]:
            total = min(total, ends[0] + 1)
            break
    is_calm = is_calm and set(text[total:stop]) <= {model.end} and stop % length == 0
    return text[len(prompt) : total], num_edited, num_steps, is_calm


@pytest.mark.parametrize("last", ["masks", "alone"])
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
    length: int, settings: dict[str, float], max_tokens: int, last: LastBlock
) -> None:
    toy, model = toy_of(length, last)
    whole = {"threshold": 0.95, "editing_threshold": 0.9, "max_post_steps": 16, **settings}
    expected = [written_with_edits(model, prompt, max_tokens, length, whole) for prompt in PROMPTS]
    sampler: dict[str, object] = {"unmasking": "llada2-editing", "unmasking_settings": settings}
    found = responses(toy, {"tokens_per_step": 1, "max_tokens": max_tokens, **sampler})
    for (ids, num_passes), (text, _, num_steps, is_calm) in zip(found, expected, strict=True):
        assert ids == text
        assert num_passes <= num_steps + (not is_calm)
        assert num_passes == num_steps + (not is_calm) or ids[-1] == model.end
    assert sum(edited for _, edited, _, _ in expected) or not settings, "nothing was edited"


@pytest.mark.parametrize("rate", [{}, {"tokens_per_step": 4}, {"steps": 10}])
@pytest.mark.parametrize(
    ("unmasking", "threshold"),
    [("sequential", None), ("low-confidence-dynamic", 0.85), ("llada2", 0.95),
     ("llada2-editing", 0.95)],
)  # fmt: skip
def test_a_published_sampler_commits_one_token_a_step_unless_the_request_says_otherwise(
    unmasking: str, threshold: float | None, rate: dict[str, object]
) -> None:
    toy, model = toy_of(8)
    quota = 4 if rate else 1
    rule = sequential(quota) if threshold is None else dynamic(threshold, quota)
    # An editor that needs more than certainty to edit writes as its predecessor.
    settings = {"unmasking_settings": {"editing_threshold": 1.0}} if "edit" in unmasking else {}
    asked: dict[str, object] = {"max_tokens": 40, "unmasking": unmasking, **settings, **rate}
    prompt = list(range(8))
    [(ids, _)] = responses(toy, asked, [prompt])
    assert ids == written(model, prompt, 40, 8, rule)[0]


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
