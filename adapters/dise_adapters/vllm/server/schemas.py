"""What a vLLM or SGLang server may answer: finite numbers, whole ids, log-probabilities up to 0.
The rest is not read.
"""

import math
from typing import Annotated

from pydantic import AliasPath, BaseModel, ConfigDict, FailFast, Field, RootModel

from dise_adapters.vllm.wire import MAX_LOGPROB
from dise_core import ModelOutputError

LogProb = Annotated[float, Field(le=MAX_LOGPROB, allow_inf_nan=False)]
TokenName = Annotated[str, Field(pattern=r"^token_id:\d{1,9}$")]
CLAMPED = -9999.0
ModelId = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00-\x1f\x7f]+$")]


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class Served(_Answer):
    """One model that a server has; root: its folder or hub id; owned_by: the server's kind."""

    id: ModelId
    owned_by: str = ""
    root: ModelId | None = None
    max_model_len: int | None = Field(default=None, ge=1)


class Models(_Answer):
    """GET /v1/models."""

    first: Served = Field(validation_alias=AliasPath("data", 0))


class RowVectors(_Answer):
    """POST /v1/dise/read: each text's vector in base64, and the texts' checksums."""

    rows: Annotated[list[str], FailFast()]
    checksums: list[int] | None = None


class _LogProbOf(_Answer):
    logprob: LogProb


class PromptChoice(_Answer):
    """The answer about a prompt: each token's log-probabilities by token id."""

    index: int = Field(ge=0)
    prompt_logprobs: Annotated[list[dict[str, _LogProbOf] | None], FailFast()]

    def logprobs_of(self, token_ids: list[int]) -> list[float]:
        """Return all log-probabilities but the first's. Raises ModelOutputError."""
        if len(self.prompt_logprobs) != len(token_ids):
            raise ModelOutputError(
                f"the server answered {len(self.prompt_logprobs)} positions of a text of "
                f"{len(token_ids)} tokens"
            )
        pairs = zip(token_ids[1:], self.prompt_logprobs[1:], strict=True)
        try:
            return [(entries or {})[str(token_id)].logprob for token_id, entries in pairs]
        except KeyError as error:
            raise ModelOutputError(
                f"the server answered about another text: it left out token {error}"
            ) from error


class Completions(_Answer):
    """POST /v1/completions."""

    choices: Annotated[list[PromptChoice], FailFast()]

    def in_order(self, num_prompts: int) -> list[PromptChoice]:
        """Return one choice for each prompt, in order. Raises ModelOutputError."""
        choices = sorted(self.choices, key=lambda choice: choice.index)
        if [choice.index for choice in choices] != list(range(num_prompts)):
            raise ModelOutputError(
                f"the server did not answer each of the {num_prompts} prompts once"
            )
        return choices


class Version(_Answer):
    """GET /version."""

    version: str


class _LogProbs(_Answer):
    """The tokens of an answer, and those told at each of their positions."""

    tokens: Annotated[list[TokenName], FailFast()]
    token_logprobs: Annotated[list[LogProb], FailFast()]
    top_logprobs: Annotated[list[dict[TokenName, LogProb]], FailFast()]

    def rows(self) -> list[dict[int, float]]:
        """Return the log-probabilities by token id, for each position."""
        return [
            {_id_of(name): _unclamped(value) for name, value in row.items()}
            for row in self.top_logprobs
        ]

    def written(self) -> tuple[list[int], list[float]]:
        """Return the ids of the answer's tokens, and their log-probabilities."""
        return [*map(_id_of, self.tokens)], [*map(_unclamped, self.token_logprobs)]


class _CanvasChoice(_Answer):
    logprobs: _LogProbs
    finish_reason: str | None = None


class CanvasAnswer(_Answer):
    """POST /v1/completions with return_tokens_as_token_ids, for one prompt."""

    choice: _CanvasChoice = Field(validation_alias=AliasPath("choices", 0))


def _id_of(name: str) -> int:
    return int(name.removeprefix("token_id:"))


def _unclamped(logprob: float) -> float:
    """Return -inf for what vLLM tells of it, JSON having none."""
    return -math.inf if logprob <= CLAMPED else logprob


class _Told(_Answer):
    prompt: Annotated[list[LogProb], FailFast()]


class _MetaInfo(_Answer):
    dise: _Told | None = None


class ReadPrompt(_Answer):
    """What SGLang tells of a text that it read as a prompt."""

    meta_info: _MetaInfo


class ReadPrompts(RootModel[list[ReadPrompt]]):
    """SGLang's POST /generate, for several prompts."""
