"""Explains a score by what its scorer asked and was answered, whichever scorer it is."""

import inspect
import math
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from dise_core.models.tokenizer import Tokenizer
from dise_core.plans.reading import Read, Reading
from dise_core.plans.readouts import Candidates, Distribution, TokenLogProbs, TopLogProbs
from dise_core.scoring.account import Account, Record
from dise_core.scoring.explanation import OWN, ExplainedRead, ExplainedToken, Explanation
from dise_core.scoring.formula import OF_NOTHING, formula, notes
from dise_core.scoring.scorer import Scorer, Selector
from dise_core.sequence import TokenSequence


def explained(
    record: Record,
    given: TokenSequence,
    scorer: Scorer,
    selector: Selector,
    tokenizers: Mapping[str, Tokenizer],
) -> Explanation:
    """Return the explanation of a recorded score. given: the text before its end was added;
    tokenizers: of the models that scorers ask.
    """
    about = sentence(inspect.getdoc(scorer) or "")
    if record.text is None or record.score is None:
        return Explanation(OF_NOTHING, about, (), (), ())
    account = Account(
        record.text, record.score, record.answers, given, scorer, selector, tokenizers
    )
    reads = tuple(_read(account, *answer) for answer in account.answers)
    tokens = tuple(_tokens(account, reads))
    return Explanation(formula(account), about, tuple(notes(account)), reads, tokens)


def sentence(docstring: str) -> str:
    """Return the first sentence, however many lines it takes."""
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    return re.split(r"(?<=\.) (?=[A-Z])", paragraph, maxsplit=1)[0]


def _read(account: Account, batch: int, read: Read, reading: Reading) -> ExplainedRead:
    logprobs = reading.logprobs if reading.logprobs.ndim == 1 else np.zeros(0)
    masked = np.flatnonzero(read.token_ids == account.text.special.mask_id)
    return ExplainedRead(
        batch,
        read.predictor,
        len(read.token_ids),
        tuple(masked.tolist()),
        _asked(account, read),
        tuple(read.positions.tolist()),
        tuple(logprobs.tolist()),
        int(reading.is_known.sum()),
        read.shadow,
        read.guidance is not None,
    )


def _asked(account: Account, read: Read) -> str:
    match read.readout:
        case TokenLogProbs(_, among):
            asked = OWN if account.asks_own(read) else "other tokens"
            return asked if among is None else f"{asked}, among those that the constraint allows"
        case Candidates():
            return "the model's candidates"
        case TopLogProbs(k):
            return f"the {k} likeliest tokens"
        case Distribution():
            return "the whole distribution"


def _tokens(account: Account, reads: Sequence[ExplainedRead]) -> Iterator[ExplainedToken]:
    """Yield the tokens of the response and behind it, and others that were asked for or count."""
    text, (written, steps) = account.text, account.written
    counts, reasons = text.mask_of(_counted(account)), _reasons(account)
    is_shown = counts | text.mask_of(slice(text.prompt_length, None))
    asked = {position for read in reads for position in read.positions}
    is_shown[[position for position in asked if position < len(text)]] = True
    for at in np.flatnonzero(is_shown).tolist():
        told = account.told.get(at, [])
        yield ExplainedToken(
            at,
            int(text.ids[at]),
            account.names[at],
            sum(logprob for _, logprob in told) / len(told) if told else None,
            tuple(number for number, _ in told),
            None if math.isnan(written[at]) else float(written[at]),
            None if steps[at] < 0 else int(steps[at]),
            bool(counts[at]),
            reasons[at],
        )


def _counted(account: Account) -> list[int]:
    """Return the positions of the text that count."""
    return [at for at in account.score.positions.tolist() if at < len(account.text)]


def _reasons(account: Account) -> list[str]:
    """Say of each token why it counts, or why it does not."""
    text, is_end = account.text, account.text.special.is_end(account.text.ids)
    reasons = ["end token, not selected" if end else "not selected" for end in is_end.tolist()]
    for at in account.told:
        if at < len(text):
            reasons[at] = "read, not selected"
    num_after = text.suffix_length
    if account.scorer.asks == "target":
        num_after += len(text) - len(account.given)
        for at in np.flatnonzero(account.selector.select(account.given)).tolist():
            reasons[at] = (
                "left out: forced by the constraint"
                if account.forced[at]
                else "selected, but the scorer does not count it"
            )
    for at in range(len(text) - num_after, len(text)):
        reasons[at] = "after the response, never selected"
    for at in _counted(account):
        is_zero = 0 in (account.once[at], account.written[0][at])
        is_forced = account.forced[at] and is_zero
        reasons[at] = "selected; 0: forced by the constraint" if is_forced else "selected"
    return reasons
