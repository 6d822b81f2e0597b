"""Why a score is what it is, by what its scorer asked and was answered, whichever it is."""

import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from dise_core.arrays import Floats
from dise_core.models.pieces import pieces
from dise_core.models.tokenizer import Tokenizer
from dise_core.plans.reading import Read, Reading
from dise_core.plans.readouts import Candidates, Distribution, TokenLogProbs, TopLogProbs
from dise_core.records import Record, json_number
from dise_core.scoring.score import Score, Transcript
from dise_core.scoring.sequence_scorer import SequenceScorer
from dise_core.sequence import TokenSequence

OWN = "the text's tokens"
"""What a Read asks for that tells how likely the text is."""

EMPTY = "no token is selected, so there is no score"

OF_FORCED = "value = 0, as the constraint forced every token that is selected"

MADE: Mapping[str, Callable[[Floats], float]] = {"mean": np.mean, "sum": np.sum, "least": np.min}
"""What a value may be of its tokens' log-probabilities. Which one it is, if any, is computed."""


@dataclass(frozen=True, slots=True)
class ExplainedRead:
    """One Read of a scorer and its answer. `batch`: from 1, Reads of one batch were asked
    together. `model`: "target" or "judge". `num_tokens`: of the text that was read;
    `masked`: the positions of its masks. `asks`: for what at its `positions`. `logprobs`:
    the answer, in nats, one for each position; empty for a Read of whole distributions.
    `num_known`: how many of them were known from the passes that wrote the text; the
    others were computed now.
    """

    batch: int
    model: str
    num_tokens: int
    masked: tuple[int, ...]
    asks: str
    positions: tuple[int, ...]
    logprobs: tuple[float, ...]
    num_known: int
    is_shadow: bool = False
    is_guided: bool = False


@dataclass(frozen=True, slots=True)
class ExplainedToken:
    """One token of a scored text. `text`: what it adds to the text, or the name of a
    special token. `logprob`: what the model answered about it, in nats, the mean where
    several of the `reads`, which count from 1, asked; None where none did. `written`,
    `step`: its log-probability when it was written, and the denoising step; None for a
    given token. `counts`: whether the score is about it; `why`, or why not. `weight`:
    what it counts in a weighted mean; None in any other.
    """

    position: int
    id: int
    text: str
    logprob: float | None
    reads: tuple[int, ...]
    written: float | None
    step: int | None
    counts: bool
    why: str
    weight: float | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a score was made of. `formula`: how the value follows from the tokens, or what
    is known of that; `about`: what the scorer says of itself; `notes`: sentences on the
    text, its writing and its constraint; `tokens`: those that were read, counted, or in
    the response, in order.
    """

    formula: str
    about: str
    notes: tuple[str, ...] = ()
    reads: tuple[ExplainedRead, ...] = ()
    tokens: tuple[ExplainedToken, ...] = ()

    def to_dict(self) -> Record:
        """Return the JSON form; -inf becomes null."""
        record = asdict(self)
        for read in record["reads"]:
            read["logprobs"] = list(map(json_number, read["logprobs"]))
        for token in record["tokens"]:
            token |= {name: json_number(token[name]) for name in ("logprob", "written")}
            if token["weight"] is None:
                del token["weight"]
        return record | {name: list(record[name]) for name in ("notes", "reads", "tokens")}


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
        return Explanation(EMPTY, about)
    if bound.scorer.asks == "judge" and bound.translation is not None:
        tokenizer = bound.translation.judge.tokenizer
    score, text = transcripts[0].score, transcripts[0].text
    batches = enumerate(transcripts[0].batches, start=1)
    reads = [_read(number, text, *pair) for number, batch in batches for pair in batch]
    answers = _answers(reads, len(text))
    logprobs, written = np.full((2, len(text)), np.nan)
    for at, pairs in answers.items():
        logprobs[at] = sum(logprob for _, logprob in pairs) / len(pairs)
    if (writing := text.own_writing()) is not None:
        written = writing.logprobs.astype(np.float64)
    names = [
        piece or ("" if tokenizer.decode(text.ids[[at]]) else tokenizer.token_text(int(token)))
        for at, (piece, token) in enumerate(zip(pieces(tokenizer, text.ids), text.ids, strict=True))
    ]
    num_added = len(text) - len(response) if bound.scorer.asks == "target" else 0
    why = _reasons(text, response, bound, num_added, answers)
    weights: dict[int, float | None] = dict.fromkeys(score.positions.tolist())
    if score.weights is not None:
        weights = dict(zip(weights, score.weights.tolist(), strict=True))
    asked = {at for read in reads for at in read.positions if at < len(text)}
    tokens = [
        ExplainedToken(
            at,
            int(text.ids[at]),
            names[at],
            None if math.isnan(logprobs[at]) else float(logprobs[at]),
            tuple(number for number, _ in answers.get(at, ())),
            None if math.isnan(written[at]) else float(written[at]),
            None if writing is None or writing.steps[at] < 0 else int(writing.steps[at]),
            at in weights,
            "selected" if at in weights else why[at],
            weights.get(at),
        )
        for at in sorted({*range(text.prompt_length, len(text)), *weights, *asked})
    ]
    notes = tuple(_notes(text, reads, names, num_added))
    formula = _formula(score, logprobs, written, len(reads))
    return Explanation(formula, about, notes, tuple(reads), tuple(tokens))


def _answers(reads: Sequence[ExplainedRead], length: int) -> dict[int, list[tuple[int, float]]]:
    """Return by position the numbers of the Reads of the text's token, with the answers."""
    answers: dict[int, list[tuple[int, float]]] = {}
    for number, read in enumerate(reads, start=1):
        if read.asks == OWN:
            for at, logprob in zip(read.positions, read.logprobs, strict=True):
                if at < length:
                    answers.setdefault(at, []).append((number, logprob))
    return answers


def sentence(docstring: str) -> str:
    """Return the first sentence, however many lines it takes."""
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    return re.split(r"(?<=\.) (?=[A-Z])", paragraph, maxsplit=1)[0]


def _read(batch: int, text: TokenSequence, read: Read, reading: Reading) -> ExplainedRead:
    asks = "other tokens"
    match read.readout:
        case TokenLogProbs(targets):
            # The text may hold masks, and more or fewer tokens at the end.
            length = min(len(read.token_ids), len(text))
            is_same = read.token_ids[:length] == text.ids[:length]
            is_same |= read.token_ids[:length] == text.special.mask_id
            inside = read.positions < length
            if is_same.all() and (targets[inside] == text.ids[read.positions[inside]]).all():
                asks = OWN
        case Candidates():
            asks = "the model's candidates"
        case TopLogProbs(k):
            asks = f"the {k} likeliest tokens"
        case Distribution():
            asks = "the whole distribution"
    return ExplainedRead(
        batch,
        read.predictor,
        len(read.token_ids),
        tuple(np.flatnonzero(read.token_ids == text.special.mask_id).tolist()),
        asks,
        tuple(read.positions.tolist()),
        tuple(reading.logprobs.tolist()) if reading.logprobs.ndim == 1 else (),
        int(reading.is_known.sum()),
        read.shadow,
        read.guidance is not None,
    )


def _formula(score: Score, logprobs: Floats, written: Floats, num_reads: int) -> str:
    """Return how the value follows from the tokens, or what it was computed from."""
    if not score.num_positions:
        return OF_FORCED if score.under == "forced" else EMPTY
    value, parts, ways = number_text(score.value), score.summands, MADE
    if parts and _is_close(sum(part.weight * part.value for part in parts), score.value):
        terms = (f"{part.weight:.4g} x {number_text(part.value)} ({part.name})" for part in parts)
        return f"value = {' + '.join(terms)} = {value}"
    if score.weights is not None:
        ways = {"weighted mean": lambda logprobs: np.average(logprobs, weights=score.weights)}
    for when, column in {"": logprobs, ", each at its step": written}.items():
        for word, make in ways.items():
            if _is_close(make(column[score.positions]), score.value):
                tokens = _count(score.num_positions, "token")
                return f"value = {word} of the log-probabilities of {tokens}{when} = {value}"
    error = score.standard_error
    estimate = "" if error is None else f" ± {error:.4f}, an estimate"
    return f"value = {value}{estimate}, computed by the scorer from {_count(num_reads, 'Read')}"


def _notes(
    text: TokenSequence, reads: Sequence[ExplainedRead], names: Sequence[str], num_added: int
) -> Iterator[str]:
    """Yield sentences on the writing, on what follows the text, and the constraint."""
    if (writing := text.own_writing()) is None:
        yield "The text was given, so there is no record of how it was written."
    else:
        num_steps = _count(len(np.unique(writing.steps[writing.steps >= 0])), "step")
        yield (
            f"The text was written in {num_steps}. `written` is each token's log-probability "
            "at its own `step`, when other tokens were still masked."
        )
    ends = text.prompt_length + np.flatnonzero(text.special.is_end(text.response))
    if reads and text.suffix_length:
        suffix = _count(text.suffix_length, "token")
        yield f"The model also reads the suffix after the gap ({suffix}), which is never selected."
    elif reads and num_added:
        name = names[-1]
        yield f"The model also reads an end token after the text, {name}, which is never selected."
    elif reads and len(ends):
        name, times = names[int(ends[0])], f" x{len(ends)}" if len(ends) > 1 else ""
        yield f"The text ends with {name}{times}, which the model also reads."
    elif reads and max(read.num_tokens for read in reads) > len(text):
        yield "The scorer adds a token of its own after the text."
    elif reads:
        yield "The model reads no end token after the text, so to the model the text may go on."
    if num_known := sum(read.num_known for read in reads):
        yield (
            f"{num_known} log-probabilit{'y' if num_known == 1 else 'ies'} came from the "
            "passes that wrote the text and did not have to be computed again (`reused`)."
        )
    if text.rule is not None:
        yield "The score leaves out the tokens that the constraint forced."


def _reasons(
    text: TokenSequence,
    response: TokenSequence,
    bound: SequenceScorer,
    num_added: int,
    answered: Iterable[int],
) -> list[str]:
    """Return why each token does not count, if the score is not about it."""
    is_end = text.special.is_end(text.ids)
    reasons = ["end token, not selected" if end else "not selected" for end in is_end]
    for at in answered:
        reasons[at] = "read, not selected"
    if bound.scorer.asks == "target":
        forced = text.mask_of([])
        forced[response.response_positions] = response.is_forced
        for at in np.flatnonzero(bound.selector.select(response)).tolist():
            reasons[at] = (
                "left out: forced by the constraint"
                if forced[at]
                else "selected, but the scorer does not count it"
            )
    for at in range(len(text) - text.suffix_length - num_added, len(text)):
        reasons[at] = "after the response, never selected"
    return reasons


def number_text(number: float) -> str:
    """Return a number with four decimals, or one digit if those would be zeros."""
    return f"{number:.0e}" if 0 < abs(number) < 5e-5 else f"{number:.4f}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number != 1 else ''}"


def _is_close(first: float, second: float) -> bool:
    return math.isclose(first, second, rel_tol=1e-9, abs_tol=1e-12)
