"""The samplers of block-diffusion families as naive loops, written from the published descriptions:
the whole text again in each step, and no cache. Only tests use them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dise_core.models.info import LastBlockRule


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
    last: LastBlockRule = "masks"
    is_certain: bool = False

    def canvas(self, prompt: list[int], max_tokens: int, length: int) -> list[int]:
        """Return the text as the loop begins it."""
        total = len(prompt) + max_tokens
        more = -total % length if self.last == "masks" else 0
        return prompt + [self.mask] * (max_tokens + more)


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
