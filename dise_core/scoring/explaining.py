"""Explains a score by what its scorer asked and was answered, whichever scorer it is."""

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat

import numpy as np

from dise_core.arrays import Floats
from dise_core.models.tokenizer import Tokenizer
from dise_core.scoring.account import Account
from dise_core.scoring.explanation import ExplainedToken, Explanation
from dise_core.scoring.score import Transcript
from dise_core.scoring.sequence_scorer import SequenceScorer
from dise_core.sequence import TokenSequence

OF_NOTHING = "no token is selected, so there is no score"

OF_FORCED = "value = 0, as the constraint forced every token that is selected"

MADE: Mapping[str, Callable[[Floats], float]] = {"mean": np.mean, "sum": np.sum, "least": np.min}
"""What a value may be of its tokens' log-probabilities. Which one it is, if any, is computed."""


def explain(
    transcripts: Sequence[Transcript],
    bound: SequenceScorer,
    response: TokenSequence,
    tokenizer: Tokenizer,
) -> Explanation:
    """Return the explanation of a score. transcripts: of its evaluation. response: the
    text before its end was added. tokenizer: of the model that writes.
    """
    about = sentence(inspect.getdoc(bound.scorer) or "")
    if not transcripts:
        return Explanation(OF_NOTHING, about)
    if bound.scorer.asks == "judge" and bound.translation is not None:
        tokenizer = bound.translation.judge.tokenizer
    account = Account(transcripts[0], bound, response, tokenizer)
    notes, tokens = tuple(_notes(account)), tuple(_tokens(account))
    return Explanation(_formula(account), about, notes, account.reads, tokens)


def sentence(docstring: str) -> str:
    """Return the first sentence, however many lines it takes."""
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    return re.split(r"(?<=\.) (?=[A-Z])", paragraph, maxsplit=1)[0]


def _formula(account: Account) -> str:
    """Return how the value follows from the tokens, or what it was computed from."""
    score, value = account.transcript.score, account.transcript.score.value
    if not score.num_positions:
        return OF_FORCED if score.under == "forced" else OF_NOTHING
    parts = score.summands
    if parts and _is_close(sum(part.weight * part.value for part in parts), value):
        terms = (f"{part.weight:.4g} x {number_text(part.value)} ({part.name})" for part in parts)
        return f"value = {' + '.join(terms)} = {number_text(value)}"
    columns = {"": account.logprobs, ", each at its step": account.writing[0]}
    ways = MADE
    if score.weights is not None:
        ways = {"weighted mean": lambda logprobs: np.average(logprobs, weights=score.weights)}
    for when, logprobs in columns.items():
        for word, make in ways.items():
            if _is_close(make(logprobs[account.counting]), value):
                tokens = _count(score.num_positions, "token")
                subject = f"{word} of the log-probabilities of {tokens}{when}"
                return f"value = {subject} = {number_text(value)}"
    error = score.standard_error
    estimate = "" if error is None else f" ± {error:.4f}, an estimate"
    reads = _count(len(account.reads), "Read")
    return f"value = {number_text(value)}{estimate}, computed by the scorer from {reads}"


def _notes(account: Account) -> Iterator[str]:
    """Yield sentences on the writing, on what follows the text, and the constraint."""
    steps = account.writing[1]
    num_steps = _count(len(np.unique(steps[steps >= 0])), "step")
    yield (
        "The text was given, so there is no record of how it was written."
        if account.text.own_writing() is None
        else f"The text was written in {num_steps}. `written` is each token's log-probability "
        "at its own `step`, when other tokens were still masked."
    )
    if account.reads:
        yield _after(account)
    if num_known := sum(read.num_known for read in account.reads):
        yield (
            f"{num_known} log-probabilit{'y' if num_known == 1 else 'ies'} came from the "
            "passes that wrote the text and did not have to be computed again (`reused`)."
        )
    if account.rule is not None:
        yield "The score leaves out the tokens that the constraint forced."


def _after(account: Account) -> str:
    """Return a sentence on what the model reads after the response's text."""
    text = account.text
    if text.suffix_length:
        suffix = _count(text.suffix_length, "token")
        return f"The model also reads the suffix after the gap ({suffix}), which is never selected."
    if account.num_added:
        name = account.names[-1]
        return f"The model also reads an end token after the text, {name}, which is never selected."
    ends = text.prompt_length + np.flatnonzero(text.special.is_end(text.response))
    if len(ends):
        name, times = account.names[int(ends[0])], f" x{len(ends)}" if len(ends) > 1 else ""
        return f"The text ends with {name}{times}, which the model also reads."
    if max(read.num_tokens for read in account.reads) > len(text):
        return "The scorer adds a token of its own after the text."
    return "The model reads no end token after the text, so to the model the text may go on."


def _tokens(account: Account) -> Iterator[ExplainedToken]:
    """Yield the tokens from the response on, and others that were asked for or count."""
    text, (written_logprobs, steps), reasons = account.text, account.writing, _reasons(account)
    weights = account.transcript.score.weights
    counted = repeat(None) if weights is None else weights.tolist()
    weight_of = dict(zip(account.counting.tolist(), counted, strict=False))
    read_positions = {position for read in account.reads for position in read.positions}
    positions = {*range(text.prompt_length, len(text)), *weight_of, *read_positions}
    for at in sorted(positions.intersection(range(len(text)))):
        yield ExplainedToken(
            at,
            int(text.ids[at]),
            account.names[at],
            None if math.isnan(account.logprobs[at]) else float(account.logprobs[at]),
            tuple(number for number, _ in account.answers.get(at, [])),
            None if math.isnan(written_logprobs[at]) else float(written_logprobs[at]),
            None if steps[at] < 0 else int(steps[at]),
            at in weight_of,
            reasons[at],
            weight_of.get(at),
        )


def _reasons(account: Account) -> list[str]:
    """Return why each token counts, or why it does not."""
    text, is_forced = account.text, account.is_forced
    is_end = text.special.is_end(text.ids)
    reasons = ["end token, not selected" if end else "not selected" for end in is_end]
    for at in account.answers.keys() & set(range(len(text))):
        reasons[at] = "read, not selected"
    if account.bound.scorer.asks == "target":
        for at in np.flatnonzero(account.bound.selector.select(account.response)).tolist():
            reasons[at] = (
                "left out: forced by the constraint"
                if is_forced[at]
                else "selected, but the scorer does not count it"
            )
    for at in range(len(text) - text.suffix_length - account.num_added, len(text)):
        reasons[at] = "after the response, never selected"
    for at in account.counting.tolist():
        reasons[at] = "selected"
    return reasons


def number_text(number: float) -> str:
    """Return a number with four decimals, or one digit if those would be zeros."""
    return f"{number:.0e}" if 0 < abs(number) < 5e-5 else f"{number:.4f}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number != 1 else ''}"


def _is_close(first: float, second: float) -> bool:
    return math.isclose(first, second, rel_tol=1e-9, abs_tol=1e-12)
