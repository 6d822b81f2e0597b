"""What an explanation says in words: how the value follows, and what else was known or read."""

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from dise_core.arrays import Floats
from dise_core.scoring.account import Account

OF_NOTHING = "nothing is selected, so there is no score"

MADE: Mapping[str, Callable[[Floats], float]] = {"mean": np.mean, "sum": np.sum, "least": np.min}
"""What a value may be of its tokens' log-probabilities. Which one it is, if any, is computed."""


def formula(account: Account) -> str:
    """Return how the value follows from the tokens that count; else what it is made of."""
    score, value = account.score, account.score.value
    if not score.num_positions:
        return OF_NOTHING
    terms = [part.weight * part.value for part in score.summands]
    if terms and _is_close(sum(terms), value):
        parts = (f"{part.weight:.4g} x {told(part.value)} ({part.name})" for part in score.summands)
        return f"value = {' + '.join(parts)} = {told(value)}"
    for when, logprobs in {"": account.once, ", each at its step": account.written[0]}.items():
        for word, make in MADE.items():
            if _is_close(make(logprobs[score.positions]), value):
                counted = _count(score.num_positions, "token")
                return f"value = {word} of the log-probabilities of {counted}{when} = {told(value)}"
    error = score.standard_error
    spread = "" if error is None else f" ± {error:.4f}, an estimate"
    reads = _count(len(account.answers), "Read")
    return f"value = {told(value)}{spread}, computed by the scorer from {reads}"


def notes(account: Account) -> Iterator[str]:
    """Yield sentences on how the text was written, what is read after it, and the constraint."""
    yield _writing(account)
    if account.answers:
        yield _after(account)
    if num_known := sum(int(reading.is_known.sum()) for *_, reading in account.answers):
        yield (
            f"{_count(num_known, 'log-probability', 'log-probabilities')} came from the passes "
            "that wrote the text and did not have to be computed again (`reused`)."
        )
    rule = account.text.rule
    if rule is not None and account.scorer.is_among_allowed:
        yield (
            "Log-probabilities are among the tokens that the constraint allows. Where it allows "
            "only one, that token's is 0."
            if rule.is_told
            else "The score leaves out the tokens that the constraint forced."
        )


def _writing(account: Account) -> str:
    if account.text.own_writing() is None:
        return "The text was given, so there is no record of how it was written."
    steps = account.written[1]
    count = _count(len(np.unique(steps[steps >= 0])), "step")
    return (
        f"The text was written in {count}. `written` is each token's log-probability at its own "
        "`step`, when other tokens were still masked."
    )


def _after(account: Account) -> str:
    """Say what the model reads after the response's text."""
    text = account.text
    if text.suffix_length:
        suffix = _count(text.suffix_length, "token")
        return f"The model also reads the suffix after the gap ({suffix}), which is never selected."
    if len(text) > len(account.given) and account.scorer.asks == "target":
        name = account.names[-1]
        return f"The model also reads an end token after the text, {name}, which is never selected."
    longest = max((read.token_ids for _, read, _ in account.answers), key=len)
    ends = text.prompt_length + np.flatnonzero(text.special.is_end(text.response))
    if not len(ends) and len(longest) <= len(text):
        return "The model reads no end token after the text, so to the model the text may go on."
    if not len(ends):
        return "The scorer adds a token of its own after the text."
    times = f" x{len(ends)}" if len(ends) > 1 else ""
    return f"The text ends with {account.names[int(ends[0])]}{times}, which the model also reads."


def _count(number: int, noun: str, plural: str = "") -> str:
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def told(number: float) -> str:
    """Return a number with four decimals, or with one digit where those would be noughts."""
    return f"{number:.0e}" if 0 < abs(number) < 5e-5 else f"{number:.4f}"


def _is_close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
