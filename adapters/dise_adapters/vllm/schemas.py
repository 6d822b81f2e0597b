"""What a vLLM server may answer. Numbers are finite, ids are whole, log-probabilities not positive;
what else the server says is not read.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, FailFast, Field

from dise_core.errors import ModelOutputError

MAX_LOGPROB = 1e-3
"""Rounding may put the log-probability of a sure token a little above 0."""

LogProb = Annotated[float, Field(le=MAX_LOGPROB, allow_inf_nan=False)]
TokenId = Annotated[int, Field(ge=0)]
Name = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00-\x1f\x7f]+$")]


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class Served(_Answer):
    """One model that a server has; root: its folder or hub id."""

    id: Name
    root: Name | None = None
    max_model_len: int | None = Field(default=None, ge=1)


class Models(_Answer):
    """GET /v1/models."""

    data: Annotated[list[Served], FailFast()]


class Rows(_Answer):
    """POST /v1/dise/read: each text's vector in base64, and the checksums of the texts."""

    rows: Annotated[list[str], FailFast()]
    checksums: list[int] | None = None


class LogProbOf(_Answer):
    """The log-probability of a token."""

    logprob: LogProb


class Choice(_Answer):
    """What is said of one prompt: for each of its tokens the log-probabilities by token id."""

    index: int = Field(ge=0)
    prompt_logprobs: Annotated[list[dict[str, LogProbOf] | None], FailFast()]

    def logprobs_of(self, token_ids: list[int]) -> list[float]:
        """Return the log-probability of each token but the first. Raises ModelOutputError."""
        if len(self.prompt_logprobs) != len(token_ids):
            raise ModelOutputError(
                f"the server answered {len(self.prompt_logprobs)} positions of a text of "
                f"{len(token_ids)} tokens"
            )
        rest = zip(token_ids[1:], self.prompt_logprobs[1:], strict=True)
        try:
            return [(entries or {})[str(token_id)].logprob for token_id, entries in rest]
        except KeyError as error:
            raise ModelOutputError(
                f"the server answered about another text: it left out token {error}"
            ) from error


class Completions(_Answer):
    """POST /v1/completions."""

    choices: Annotated[list[Choice], FailFast()]

    def in_order(self, num_prompts: int) -> list[Choice]:
        """Return one choice for each prompt, in order. Raises ModelOutputError."""
        choices = sorted(self.choices, key=lambda choice: choice.index)
        if [choice.index for choice in choices] != list(range(num_prompts)):
            raise ModelOutputError(
                f"the server did not answer each of the {num_prompts} prompts once"
            )
        return choices


class Top(LogProbOf):
    """A token and its log-probability."""

    token_id: TokenId


class Position(Top):
    """What stands at a position of a canvas, and what else was asked about there."""

    top_logprobs: Annotated[list[Top], FailFast()]


class Content(_Answer):
    """The positions of a canvas."""

    content: Annotated[list[Position], FailFast()]


class CanvasChoice(_Answer):
    """One canvas."""

    logprobs: Content


class Canvases(_Answer):
    """POST /inference/v1/generate."""

    choices: list[CanvasChoice] = Field(min_length=1, max_length=1)
