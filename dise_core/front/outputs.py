"""What a user gets: completions with their scores and probabilities, and their JSON forms."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import NamedTuple, Self

import numpy as np

from dise_core.errors import DiseError, InputError
from dise_core.front.fields import Field
from dise_core.history import Writing
from dise_core.records import Record, json_number
from dise_core.scoring.explaining import Explanation
from dise_core.scoring.score import Score
from dise_core.writing.generation import LengthStep
from dise_core.writing.revisions import Revision


class Token(NamedTuple):
    """One token of a response. `text`: its piece of the response's text. The pieces of
    all tokens but end tokens, joined, are the text before it is cut at a stop text; a
    character of several tokens belongs to the last. `logprob`: of regenerating it, in
    nats, or None if not asked for; `selected`: whether it counts towards the score;
    `written`: the log-probability that it had when it was written, None for a given or a
    forced token.
    """

    id: int
    text: str
    logprob: float | None
    selected: bool
    is_end: bool
    top_logprobs: tuple[tuple[int, float], ...] = ()
    top_texts: tuple[str, ...] = ()
    written: float | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form; -inf becomes null."""
        record: dict[str, object] = {
            "id": self.id,
            "text": self.text,
            "logprob": json_number(self.logprob),
            "selected": self.selected,
            "is_end": self.is_end,
        }
        if self.written is not None:
            record["written"] = json_number(self.written)
        if self.top_logprobs:
            record["top_logprobs"] = [
                {"id": token_id, "text": text, "logprob": json_number(logprob)}
                for (token_id, logprob), text in zip(self.top_logprobs, self.top_texts, strict=True)
            ]
        return record


SHOWN = 60
"""Characters of a text in the repr of an answer."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CompletionOutput:
    """One response with its score. `index`: which of the samples, or of the candidates,
    it is.

    `token_ids` includes end tokens; `text` leaves them out and ends before the first stop
    text. `finish_reason`: "stop" if the model, its length controller or a stop text ended
    the response, or a constraint made it whole, "length" if it filled the canvas, None
    for a given response. `probability`: of being right, None without a score or a
    calibration that holds for it; `abstained`: whether the score is below its threshold,
    None without one; `uncalibrated`: why the calibration that the user named does not
    apply to it. `revisions`: the rounds of the `reviser`. `writing`: how prompt and
    response were written, None for a given one. `fields`: the values of an answer that a
    constraint wrote as JSON, by JSON pointer. `explanation`: why the score is what it is,
    where that was asked for.
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
    uncalibrated: str | None = None
    writing: Writing | None = None
    fields: Mapping[str, Field] = field(default_factory=dict)
    explanation: Explanation | None = None

    @property
    def written(self) -> float | None:
        """The mean log-probability, in nats, that the scored tokens had when the model
        wrote them, which costs no pass; None for a given response, and if one of the
        tokens was not the model's choice.
        """
        if self.writing is None:
            return None
        logprobs = self.writing.logprobs[self.score.positions].astype(np.float64)
        return None if np.isnan(logprobs).all() else float(np.nanmean(logprobs))

    def __repr__(self) -> str:
        """Return a line: the text's beginning, and how sure the model is of it."""
        by = f"{self.scorer}, {self.selector}"
        facts = [f"text={_cut(self.text)}", f"score={self.score.value:.4f} ({by})"]
        if self.probability is not None:
            facts.append(f"probability={self.probability:.2f}")
        facts.append(f"finish_reason={self.finish_reason!r}, {len(self.tokens)} tokens")
        return f"CompletionOutput({', '.join(facts)})"

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form. `tokens` has one end token, or none without logprobs."""
        record: dict[str, object] = {
            "index": self.index,
            "text": self.text,
            "token_ids": list(self.token_ids),
            "finish_reason": self.finish_reason,
            "score": {"scorer": self.scorer, "selector": self.selector, **self.score.to_dict()},
            **({} if self.written is None else {"written": json_number(self.written)}),
            "probability": self.probability,
            "abstained": self.abstained,
            **({} if self.uncalibrated is None else {"uncalibrated": self.uncalibrated}),
            "tokens": [token.to_dict() for token in self._listed()],
        }
        if self.fields:
            record["fields"] = {path: field.to_dict() for path, field in self.fields.items()}
        if self.trace:
            record["length"] = {
                "controller": self.length_controller,
                "trace": [
                    {**asdict(step), "score": json_number(step.score)} for step in self.trace
                ],
                "stopped_by": self.stopped_by,
            }
        if self.reviser is not None:
            record["revisions"] = [revision.to_dict() for revision in self.revisions]
        if self.explanation is not None:
            record["explanation"] = self.explanation.to_dict()
        return record

    def _listed(self) -> list[Token]:
        if all(token.logprob is None and token.written is None for token in self.tokens):
            return []
        first = next((token for token in self.tokens if token.is_end), None)
        return [token for token in self.tokens if not token.is_end or token is first]


@dataclass(frozen=True, slots=True)
class Usage:
    """What a request cost. `nfe`: sequences sent through a forward pass; `nfe_computed`:
    each as the share of its positions that was computed rather than cached; `seconds`: of
    its plan. `prompt_tokens`: a suffix's among them. `completion_tokens`: of all outputs,
    end tokens left out. `cached_tokens`: those of the prompt that an earlier request had
    computed.
    """

    prompt_tokens: int
    completion_tokens: int
    nfe: int
    nfe_computed: float
    seconds: float
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True, eq=False, repr=False)
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
    """The seed that reproduces these outputs; None for given responses."""
    is_approximate: bool = False
    """Whether a denoising step may differ from a pass over the whole text."""
    suffix: str | None = None
    """The text after a gap; None without a gap, or if it was given as token ids."""
    error: DiseError | None = None
    """Why the request failed, with on_error="return". It then has no outputs."""

    def __repr__(self) -> str:
        """Return up to three lines: the prompt's start, how many outputs, the best."""
        prompt = f"of {len(self.prompt_token_ids)} tokens"
        prompt = f"prompt {prompt}" if self.prompt is None else f"prompt={_cut(self.prompt)}"
        facts = f"{prompt}, model={self.model!r}, outputs: {len(self.outputs)}"
        if self.error is not None:
            return f"RequestOutput({facts}, error={type(self.error).__name__}: {self.error})"
        if not self.outputs:
            return f"RequestOutput({facts})"
        return f"RequestOutput({facts}, best:\n  {self.outputs[0]!r})"

    def timed(self, seconds: float) -> Self:
        """Return it with the seconds that its plan took."""
        return replace(self, usage=replace(self.usage, seconds=seconds))

    def to_dict(self) -> Record:
        """Return the JSON form that the command prints and the server sends."""
        usage = {**asdict(self.usage), "seconds": round(self.usage.seconds, 4)}
        usage["nfe_computed"] = round(self.usage.nfe_computed, 2)
        caching: dict[str, object] = {"cache": self.cache, "is_approximate": self.is_approximate}
        if self.cache == "none":
            caching = {}
            del usage["nfe_computed"]
        return {
            "prompt": self.prompt,
            **({} if self.suffix is None else {"suffix": self.suffix}),
            "model": self.model,
            **({} if self.seed is None else {"seed": self.seed}),
            **caching,
            **({} if self.error is None else {"error": error_dict(self.error)}),
            "outputs": [output.to_dict() for output in self.outputs],
            "usage": usage,
        }


def _cut(text: str) -> str:
    """Return the beginning of a text on one line, in quotes."""
    return repr(text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}\N{HORIZONTAL ELLIPSIS}")


def error_dict(error: DiseError) -> dict[str, object]:
    """Return an error's JSON form: class, message, and parameter at fault if any."""
    parameter = error.parameter if isinstance(error, InputError) else None
    return {"type": type(error).__name__, "message": str(error), "parameter": parameter}
