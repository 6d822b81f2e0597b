"""dise rank: which of these answers is the likeliest?"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dise_app.cli import options


@options.with_engine
def rank(
    candidates: Annotated[
        list[str] | None, typer.Argument(help="Candidate answers; or give --input.", metavar="CANDIDATE...")
    ] = None,
    prompt: Annotated[str | None, typer.Option(help="The prompt that they answer.")] = None,
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
    as_json: options.Json = False,
    debug: options.Debug = False,  # noqa: ARG001
    *,
    engine: options.Engine,
) -> None:
    """Order candidate answers by their likelihood given the prompt, best first.

    A scorer that estimates the log-likelihood ranks by it, any other by its value. Lines of --input hold "prompt" (or
    "prompt_ids") and "candidates", a list of texts or of token ids.
    """
    from dise_app.cli import jsonl, render
    from dise_app.cli.memory import settled
    from dise_core import LLM, InputError, ScoringParams

    if bool(candidates) == (input is not None):
        raise InputError("give either candidates (with --prompt) or --input FILE")
    params = ScoringParams(
        scorer=scorer,
        selector=selector,
        scorer_settings=options.settings(scorer_setting, samples),
        block_length=block_length,
    )
    llm = settled(LLM(model, judge=judge, **engine))

    def plan_of(record: dict[str, Any]) -> Any:
        given = record.get("candidates")
        if not isinstance(given, list) or not given:
            raise InputError('needs "candidates", a list of texts or of token ids', "candidates")
        each = [jsonl.text_or_ids({"candidate" if isinstance(c, str) else "candidate_ids": c}, "candidate") for c in given]
        return llm.planner.rank(jsonl.optional_text_or_ids(record, "prompt"), each, params, chat)

    if input is not None:
        jsonl.run_file(llm, input, output, plan_of, resume)
    else:
        render.show(llm, [{"prompt": prompt, "candidates": candidates}], plan_of, as_json)
