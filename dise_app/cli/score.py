"""dise score: how sure is the model of a given text?"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dise_app.cli import options


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
    max_num_seqs: options.MaxNumSeqs = 64,
    max_batch_tokens: options.MaxBatchTokens = 16384,
    device: options.Device = "auto",
    dtype: options.WeightType = options.DType.auto,
    as_json: options.Json = False,
    debug: options.Debug = False,  # noqa: ARG001
) -> None:
    """Score a given response, or many from a file with "prompt" and "response" (or "prompt_ids", "response_ids")."""
    from dise_app.cli import jsonl, render
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
    llm = LLM(
        model,
        judge=judge,
        max_num_seqs=max_num_seqs,
        max_batch_tokens=max_batch_tokens,
        device=device,
        dtype=dtype.value,
    )

    def plan_of(record: dict[str, Any]) -> Any:
        prompt = jsonl.optional_text_or_ids(record, "prompt")
        return llm.planner.score(prompt, jsonl.text_or_ids(record, "response"), params, chat)

    if input is not None:
        jsonl.run_file(llm, input, output, plan_of, resume)
    else:
        render.show(llm, [{"prompt": prompt, "response": response}], plan_of, as_json)
