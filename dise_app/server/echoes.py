"""POST /v1/completions with `echo`: the prompt is scored as a text of its own, and stands before
the answer, if one is written.

A prompt's log-probabilities are those of regenerating each token given the whole prompt, left and
right, whatever is written after it. They are no conditional likelihood, and their sum is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fastapi import Request

from dise_app.server.answers import Envelope, confidence, cost, text_logprobs
from dise_app.server.schemas import CompletionRequest, Texts
from dise_app.server.service import Service
from dise_core import CompletionOutput, RequestOutput, SamplingParams, ScoringParams, Token
from dise_core.records import Record


class Echo(NamedTuple):
    """One prompt as it was given, its score, and its answer; None where none was asked for."""

    prompt: Texts
    scored: RequestOutput
    written: RequestOutput | None

    @property
    def text(self) -> str:
        return self.prompt if isinstance(self.prompt, str) else self.scored.outputs[0].text


async def run(
    service: Service, body: CompletionRequest, params: SamplingParams, request: Request
) -> list[Echo]:
    """Return what is echoed for each prompt. Raises what Service.run raises."""
    planner, prompts = service.llm.planner, body.prompts
    scoring = ScoringParams.of(params)
    plans = planner.scores([""] * len(prompts), prompts, scoring, False, finished=False)
    if body.max_tokens != 0:
        plans += planner.generations(prompts, params, False)
    results = await service.run(service.results(plans), request)
    scored, written = results[: len(prompts)], results[len(prompts) :]
    return [
        Echo(prompt, scored[index], written[index] if written else None)
        for index, prompt in enumerate(prompts)
    ]


def whole(envelope: Envelope, body: CompletionRequest, echoes: Sequence[Echo]) -> Record:
    """Return the answer to the request."""
    choices = [choice for echo in echoes for choice in _choices(echo, body.logprobs is not None)]
    written = [echo.written for echo in echoes if echo.written is not None]
    numbered = [choice | {"index": index} for index, choice in enumerate(choices)]
    costs = cost([*written, *(echo.scored for echo in echoes)])
    return envelope.of(numbered, usage=_usage(echoes), dise=costs)


def _choices(echo: Echo, has_logprobs: bool) -> list[Record]:
    [prompt] = echo.scored.outputs
    if echo.written is None:
        return [_choice(echo, prompt, prompt.tokens if has_logprobs else None, "length")]
    choices = []
    for output in echo.written.outputs:
        tokens = (*prompt.tokens, *output.tokens) if has_logprobs else None
        choices.append(_choice(echo, output, tokens, output.finish_reason))
    return choices


def _choice(
    echo: Echo, output: CompletionOutput, tokens: Sequence[Token] | None, reason: str | None
) -> Record:
    """Return one choice. tokens: all of them, with end tokens, so that clients can count them."""
    is_written = echo.written is not None
    return {
        "text": echo.text + (output.text if is_written else ""),
        "finish_reason": reason,
        "logprobs": None if tokens is None else text_logprobs(tokens),
        "dise": confidence(output, echo.written.seed if echo.written is not None else None),
    }


def _usage(echoes: Sequence[Echo]) -> dict[str, int]:
    prompt = sum(len(echo.scored.outputs[0].token_ids) for echo in echoes)
    answers = (echo.written for echo in echoes if echo.written is not None)
    written = sum(answer.usage.completion_tokens for answer in answers)
    return {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}
