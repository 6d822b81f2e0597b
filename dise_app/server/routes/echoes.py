"""POST /v1/completions with `echo`: the prompt is scored as a text of its own, and stands
before the answer, if one is written.
"""

from collections.abc import Callable, Iterator
from itertools import zip_longest

from fastapi import Request, Response

from dise_app.server.choices import JsonObject, confidence, cost, text_logprobs, usage
from dise_app.server.schemas.bodies import TextOrIds
from dise_app.server.schemas.requests import CompletionRequest
from dise_app.server.service import Service, written_out
from dise_core import RequestOutput, ScoringParams
from dise_core.front.resolved import Preparation
from dise_core.front.verbs import Job, results
from dise_core.plans.plan import numbered


async def echo(
    service: Service,
    body: CompletionRequest,
    prepared: Preparation,
    request: Request,
    completion: Callable[..., JsonObject],
) -> Response:
    """Return the completion with its prompts. Raises what Service.run raises."""
    planner, prompts, scoring = service.llm.planner, body.prompts, ScoringParams.of(prepared.asked)
    scores = [planner.score("", prompt, scoring, False, finished=False) for prompt in prompts]
    plans = numbered(scores, "text")
    if body.max_tokens != 0:
        generations = [planner.generate(prompt, prepared, False) for prompt in prompts]
        plans += numbered(generations, "prompt")
    answers = await service.run(service.llm.do(Job(plans, results, [prepared])), request)
    scored, completed = answers[: len(prompts)], answers[len(prompts) :]
    num_read = sum(len(score.outputs[0].token_ids) for score in scored)

    def whole() -> JsonObject:
        choices = [
            choice
            for prompt, score, answer in zip_longest(prompts, scored, completed)
            for choice in _choices(body, prompt, score, answer)
        ]
        return completion(
            choices=[choice | {"index": index} for index, choice in enumerate(choices)],
            usage=usage(completed, num_read),
            dise=cost([*completed, *scored]),
        )

    return await written_out(whole, (completed or scored)[0].outputs[0])


def _choices(
    body: CompletionRequest, prompt: TextOrIds, scored: RequestOutput, answer: RequestOutput | None
) -> Iterator[JsonObject]:
    """Yield the choices of a prompt, with all tokens, so that clients can count them."""
    [read] = scored.outputs
    text = prompt if isinstance(prompt, str) else read.text
    for output in [read] if answer is None else answer.outputs:
        tokens = read.tokens if answer is None else (*read.tokens, *output.tokens)
        ids = {"token_ids": [token.id for token in tokens], "prompt_token_ids": read.token_ids}
        yield {
            "text": text if answer is None else text + output.text,
            "finish_reason": "length" if answer is None else output.finish_reason,
            "logprobs": text_logprobs(tokens) if body.logprobs is not None else None,
            **(ids if body.return_token_ids else {}),
            "dise": confidence(output, None if answer is None else answer.seed),
        }
