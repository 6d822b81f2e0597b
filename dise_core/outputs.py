"""The results: scores, generations, completions, and their JSON forms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from dise_core.arrays import Ids, LogProbs
from dise_core.errors import DiseError, InputError
from dise_core.records import Record
from dise_core.revisions import Revision
from dise_core.sequence import TokenSequence


@dataclass(frozen=True, slots=True, eq=False)
class Score:
    """How sure the model is of a text: `value` in nats per token unless the scorer says otherwise;
    higher is surer.

    positions: int64 [num_positions], the scored positions; without any the value is -inf, which
    ranks last. standard_error: None for a deterministic scorer. log_likelihood: log p(response |
    prompt) in nats, from a scorer that estimates it. perplexity: exp(-log_likelihood / n) over the
    scorer's own n tokens. is_mean: whether the value is known to be a mean of log-probabilities.
    """

    value: float
    positions: Ids
    standard_error: float | None = None
    log_likelihood: float | None = None
    perplexity: float | None = None
    is_mean: bool = False

    @classmethod
    def mean_of(cls, logprobs: LogProbs, positions: Ids) -> Score:
        """Return the mean of logprobs [M] at positions [M], summed in float64; M is at least 1."""
        return cls(float(np.mean(logprobs, dtype=np.float64)), positions, is_mean=True)

    @classmethod
    def of_nothing(cls) -> Score:
        """Return the score of no positions: -inf."""
        return cls(-math.inf, np.zeros(0, np.int64))

    @property
    def num_positions(self) -> int:
        """The number of scored positions."""
        return len(self.positions)

    @property
    def token_probability(self) -> float | None:
        """The probability of a token, as the geometric mean over the positions; None for a value
        that is not known to be a mean of log-probabilities.
        """
        is_known = self.is_mean or self.perplexity is not None
        return math.exp(self.value) if is_known else None

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
    """The log-probabilities of regenerating each token of a response, in nats.

    logprobs: float32 [R]. top_ids, top_logprobs: [R, k], the k likeliest tokens per position; k is
    0 if none were asked for.
    """

    logprobs: LogProbs
    top_ids: Ids
    top_logprobs: LogProbs


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """A text's score and, if asked for, the report on its response's tokens."""

    score: Score
    tokens: TokenReport | None = None


@dataclass(frozen=True, slots=True)
class LengthStep:
    """One iteration of a length controller: the response's length in tokens, its score and NFE."""

    iteration: int
    num_tokens: int
    score: float
    nfe: int


@dataclass(frozen=True, slots=True, eq=False)
class Generation:
    """What a length controller returns: the chosen text, its evaluation, and its iterations.

    `finish_reason` None means "stop" if the text holds an end token, else "length". revisions: the
    rounds of a reviser.
    """

    sequence: TokenSequence
    evaluation: Evaluation
    trace: tuple[LengthStep, ...] = ()
    stopped_by: str | None = None
    finish_reason: Literal["stop", "length"] | None = None
    revisions: tuple[Revision, ...] = ()


class Token(NamedTuple):
    """One token of a response. `text`: its piece of the response's text: the pieces of all tokens
    that are no end tokens, joined, are that text before it is cut at a stop text, and a character
    of several tokens is the last one's. `logprob`: of regenerating it, in nats, or None if not
    asked for; `selected`: whether it counts towards the score.
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
    """One response with its score. `index`: which of the samples, or of the candidates, it is.

    `token_ids` includes end tokens; `text` leaves them out and ends before the first stop text.
    `finish_reason`: "stop" if the model, its length controller or a stop text ended the response,
    "length" if it filled the canvas, None for a given response. `probability`: of being right, None
    without a calibration or a score; `abstained`: whether the score is below the calibration's
    threshold, None without one. `revisions`: the rounds of the `reviser`; there may be none where
    it found nothing to doubt.
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
    reviser: str | None = None
    revisions: tuple[Revision, ...] = ()
    probability: float | None = None
    abstained: bool | None = None

    def to_dict(self) -> Record:
        """Return the JSON form; a score of -inf becomes null. `tokens` lists one end token, and is
        empty without log-probabilities; `token_ids` are all.
        """
        record: Record = {
            "index": self.index,
            "text": self.text,
            "token_ids": list(self.token_ids),
            "finish_reason": self.finish_reason,
            "score": {"scorer": self.scorer, "selector": self.selector, **self.score.to_dict()},
            "probability": self.probability,
            "abstained": self.abstained,
            "tokens": [token.to_dict() for token in self._listed()],
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
        if self.reviser is not None:
            record["revisions"] = [revision.to_dict() for revision in self.revisions]
        return record

    def _listed(self) -> list[Token]:
        """Return the tokens in the JSON form: of the end tokens the first, and none at all without
        log-probabilities.
        """
        if all(token.logprob is None for token in self.tokens):
            return []
        first = next((token for token in self.tokens if token.is_end), None)
        return [token for token in self.tokens if not token.is_end or token is first]


@dataclass(frozen=True, slots=True)
class Usage:
    """What a request cost. `nfe`: sequences sent through a forward pass; `seconds`: from the start
    of its plan to its end.

    `nfe_computed`: like `nfe`, but each forward pass counts as the share of its positions that was
    computed rather than cached. `completion_tokens`: the tokens of all outputs, end tokens left
    out.
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
    """The kind of cache that the request asked for. Scores are exact with any."""
    seed: int | None = None
    """The seed, given or drawn, that reproduces these outputs; None for given responses."""
    is_approximate: bool = False
    """Whether some answer of the denoising may differ from that of a pass over the whole text."""
    error: DiseError | None = None
    """Why the request failed, where the caller asked for errors as answers: it has no outputs."""

    @property
    def approximation(self) -> Record:
        """The JSON fields on caching; none if the request asked for no cache."""
        return (
            {}
            if self.cache == "none"
            else {"cache": self.cache, "is_approximate": self.is_approximate}
        )

    def to_dict(self) -> Record:
        """Return the JSON form that the command prints and the server sends."""
        computed = (
            {} if self.cache == "none" else {"nfe_computed": round(self.usage.nfe_computed, 2)}
        )
        return {
            "prompt": self.prompt,
            "model": self.model,
            **({} if self.seed is None else {"seed": self.seed}),
            **self.approximation,
            **({} if self.error is None else {"error": error_dict(self.error)}),
            "outputs": [output.to_dict() for output in self.outputs],
            "usage": {
                "prompt_tokens": self.usage.prompt_tokens,
                "completion_tokens": self.usage.completion_tokens,
                "nfe": self.usage.nfe,
                **computed,
                "seconds": round(self.usage.seconds, 4),
            },
        }


def error_dict(error: DiseError) -> Record:
    """Return an error's JSON form: its class, its message and the parameter at fault, if any."""
    parameter = error.parameter if isinstance(error, InputError) else None
    return {"type": type(error).__name__, "message": str(error), "parameter": parameter}


def _json_number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
