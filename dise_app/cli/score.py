"""dise score: how sure is the model of a given text?"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dise_app.cli import options


@options.with_engine
def score(
    prompt: Annotated[str | None, typer.Option(help="The prompt; without it the response is a text of its own.")] = None,
    response: Annotated[str | None, typer.Option(help="The response to score; or give --input.")] = None,
    model: options.Model = "countdown",
    input: options.Input = None,  # noqa: A002
    output: options.Output = None,
    resume: options.Resume = False,
    chat: options.Chat = None,
    scorer: options.ScorerName = "dise",
    selector: options.SelectorName = None,
    scorer_setting: options.ScorerSettings = None,
    samples: options.Samples = None,
    judge: options.Judge = None,
    block_length: options.BlockLength = 32,
    logprobs: options.LogProbs = 0,
    as_json: options.Json = False,
    debug: options.Debug = False,  # noqa: ARG001
    *,
    engine: options.Engine,
) -> None:
    """Score a given response, or many from a file with "prompt" and "response" (or "prompt_ids", "response_ids")."""
    from dise_app.cli import jsonl, render
    from dise_app.cli.memory import settled
    from dise_core import LLM, InputError, ScoringParams

    if (response is None) == (input is None):
        raise InputError("give either --response TEXT (with --prompt) or --input FILE")
    params = ScoringParams(
        scorer=scorer,
        selector=selector,
        scorer_settings=options.settings(scorer_setting, samples),
        block_length=block_length,
        logprobs=logprobs,
    )
    llm = settled(LLM(model, judge=judge, **engine))

    def plan_of(record: dict[str, Any]) -> Any:
        prompt = jsonl.optional_text_or_ids(record, "prompt")
        return llm.planner.score(prompt, jsonl.text_or_ids(record, "response"), params, chat)

    if input is not None:
        jsonl.run_file(llm, input, output, plan_of, resume)
    else:
        render.show(llm, [{"prompt": prompt, "response": response}], plan_of, as_json)
