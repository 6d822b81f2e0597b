"""Why a score is what it is: what was read, what was known before, and which tokens count."""

from dataclasses import asdict, dataclass

from dise_core.records import Record, json_number

OWN = "the text's tokens"
"""What a Read asks for that tells how likely the text is."""


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
