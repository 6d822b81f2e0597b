"""What comes back: scores, generations, completions, and the JSON of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from dise_core.arrays import Ids, LogProbs
from dise_core.records import Record
from dise_core.sequence import TokenSequence


@dataclass(frozen=True, slots=True, eq=False)
class Score:
    """How sure the model is of a text: `value` in nats per token unless the scorer says otherwise;
    higher is surer.

    positions: int64 [num_positions], those the value is taken over. No position at all gives -inf,
    which ranks last. `standard_error` is None for a deterministic scorer. `log_likelihood`: log
    p(response | prompt) in nats, from a scorer that estimates it; `perplexity`: exp of minus its
    mean over the scorer's own tokens.
    """

    value: float
    positions: Ids
    standard_error: float | None = None
    log_likelihood: float | None = None
    perplexity: float | None = None

    @classmethod
    def mean_of(cls, logprobs: LogProbs, positions: Ids) -> Score:
        """Return the mean of logprobs [M] at positions [M], summed in float64; M is at least 1."""
        return cls(float(np.mean(logprobs, dtype=np.float64)), positions)

    @classmethod
    def of_nothing(cls) -> Score:
        """Return the score over no position at all: -inf."""
        return cls(-math.inf, np.zeros(0, np.int64))

    @property
    def num_positions(self) -> int:
        """How many positions the value is taken over."""
        return len(self.positions)

    @property
    def rank_value(self) -> float:
        """What candidates are ranked by: the log-likelihood where there is one, else the value."""
        return self.value if self.log_likelihood is None else self.log_likelihood

    def to_dict(self) -> Record:
        """Return the JSON form; numbers that are not finite become null."""
        record = {
            "value": _json_number(self.value),
            "num_positions": self.num_positions,
            "standard_error": _json_number(self.standard_error),
        }
        for name in ("log_likelihood", "perplexity"):
            if (number := getattr(self, name)) is not None:
                record[name] = _json_number(number)
        return record


@dataclass(frozen=True, slots=True, eq=False)
class TokenReport:
    """How each token of a response is regenerated, read beside the score.

    logprobs: float32 [R]. top_ids, top_logprobs: [R, k] of the likeliest tokens, k = 0 where not
    asked for.
    """

    logprobs: LogProbs
    top_ids: Ids
    top_logprobs: LogProbs


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """A scored text: the score and, where it was asked for, the report on its response's tokens."""

    score: Score
    tokens: TokenReport | None = None


@dataclass(frozen=True, slots=True)
class LengthStep:
    """One iteration of a length controller: the response's length in tokens, its score, and its
    cost.
    """

    iteration: int
    num_tokens: int
    score: float
    nfe: int


@dataclass(frozen=True, slots=True, eq=False)
class Generation:
    """What a length controller returns: the chosen text, its evaluation, and how it was reached.

    `finish_reason` None means "stop" if the text holds an end token, else "length".
    """

    sequence: TokenSequence
    evaluation: Evaluation
    trace: tuple[LengthStep, ...] = ()
    stopped_by: str | None = None
    finish_reason: Literal["stop", "length"] | None = None


class Token(NamedTuple):
    """One token of a response. `logprob`: of regenerating it, in nats; `selected`: whether the
    score is taken over it.

    `logprob` is None where none was asked for.
    """

    id: int
    text: str
    logprob: float | None
    selected: bool
    is_end: bool
    top_logprobs: tuple[tuple[int, float], ...] = ()
    top_texts: tuple[str, ...] = ()

    def to_dict(self) -> Record:
        """Return the JSON form; -inf becomes null."""
        record: Record = {
            "id": self.id,
            "text": self.text,
            "logprob": _json_number(self.logprob),
            "selected": self.selected,
            "is_end": self.is_end,
        }
        if self.top_logprobs:
            record["top_logprobs"] = [
                {"id": token_id, "text": text, "logprob": _json_number(logprob)}
                for (token_id, logprob), text in zip(self.top_logprobs, self.top_texts, strict=True)
            ]
        return record


@dataclass(frozen=True, slots=True, eq=False)
class CompletionOutput:
    """One response with its score. `index`: which of the samples, or of the candidates, it was.

    `token_ids` holds all of it, end tokens included; `text` leaves them out. `finish_reason`:
    "stop" if the model wrote an end token, "length" if it filled the canvas, None for a text that
    was given.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str | None
    score: Score
    scorer: str
    selector: str
    tokens: tuple[Token, ...]
    index: int = 0
    length_controller: str | None = None
    trace: tuple[LengthStep, ...] = ()
    stopped_by: str | None = None

    def to_dict(self) -> Record:
        """Return the JSON form; a score of -inf becomes null."""
        record: Record = {
            "index": self.index,
            "text": self.text,
            "token_ids": list(self.token_ids),
            "finish_reason": self.finish_reason,
            "score": {"scorer": self.scorer, "selector": self.selector, **self.score.to_dict()},
            "tokens": [token.to_dict() for token in self.tokens],
        }
        if self.trace:
            record["length"] = {
                "controller": self.length_controller,
                "trace": [
                    {
                        "iteration": s.iteration,
                        "num_tokens": s.num_tokens,
                        "score": _json_number(s.score),
                        "nfe": s.nfe,
                    }
                    for s in self.trace
                ],
                "stopped_by": self.stopped_by,
            }
        return record


@dataclass(frozen=True, slots=True)
class Usage:
    """What a request cost. `nfe`: sequences sent through a forward pass; `seconds`: from admission
    to the end.

    `nfe_computed`: the same with each pass counted by the share of its positions that were
    computed; the rest was cached. `completion_tokens` counts the tokens of all outputs that are
    no end tokens.
    """

    prompt_tokens: int
    completion_tokens: int
    nfe: int
    nfe_computed: float
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class RequestOutput:
    """The answer to one request: its outputs, best score first."""

    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    model: str
    outputs: tuple[CompletionOutput, ...]
    usage: Usage
    cache: str = "none"
    """Which cache the texts were to be written with. Scores are exact with any."""
    seed: int | None = None
    """The seed that writes these outputs again, given or drawn; None for texts that were given."""
    is_approximate: bool = False
    """Whether some answer that the writing asked for was not that of a pass over the whole text."""

    @property
    def approximation(self) -> Record:
        """What the JSON form says of texts that were to be written with a cache; nothing of any
        other.
        """
        return (
            {}
            if self.cache == "none"
            else {"cache": self.cache, "is_approximate": self.is_approximate}
        )

    def to_dict(self) -> Record:
        """Return the JSON form that the command and the server print."""
        computed = (
            {} if self.cache == "none" else {"nfe_computed": round(self.usage.nfe_computed, 2)}
        )
        return {
            "prompt": self.prompt,
            "model": self.model,
            **({} if self.seed is None else {"seed": self.seed}),
            **self.approximation,
            "outputs": [output.to_dict() for output in self.outputs],
            "usage": {
                "prompt_tokens": self.usage.prompt_tokens,
                "completion_tokens": self.usage.completion_tokens,
                "nfe": self.usage.nfe,
                **computed,
                "seconds": round(self.usage.seconds, 4),
            },
        }


def _json_number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
