"""dise generate: write answers, each with its score."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dise_app.cli import options

Pairs = list[str] | None

DENOISING_OPTIONS: options.Table = {
    "max_tokens": (Annotated[int, typer.Option(help="Length of the response's canvas in tokens.")], 128),
    "block_length": (options.BlockLength, 32),
    "tokens_per_step": (Annotated[int | None, typer.Option(help="Tokens written in one step. [default: 2]")], None),
    "steps": (Annotated[int | None, typer.Option(help="Denoising steps in all, instead of --tokens-per-step.")], None),
    "eps": (
        Annotated[float | None, typer.Option(help="Dream's schedule: steps even in time, which falls from 1 to EPS.")],
        None,
    ),
    "temperature": (Annotated[float, typer.Option(help="0 takes the likeliest token.")], 0.0),
    "top_p": (Annotated[float, typer.Option(help="Draw only from the likeliest tokens of this probability together.")], 1.0),
    "top_k": (Annotated[int, typer.Option(help="Draw only from this many of the likeliest tokens; 0 means all.")], 0),
    "seed": (
        Annotated[int | None, typer.Option(help="Same seed, same prompt, same answer. [default: drawn, and told]")],
        None,
    ),
    "cfg_scale": (Annotated[float, typer.Option(help="Scale of classifier-free guidance; 0 turns it off.")], 0.0),
    "cache": (
        Annotated[options.CacheName, typer.Option(help="Keep keys and values within a block: faster, and approximate.")],
        options.CacheName.none,
    ),
    "early_exit": (
        Annotated[float | None, typer.Option(help="End an answer whose rest would be end tokens, each surer than this.")],
        None,
    ),
    "logits_eos_inf": (
        Annotated[bool, typer.Option("--logits-eos-inf", help="Never write the end token, as LLaDA's option.")],
        False,
    ),
    "confidence_eos_eot_inf": (
        Annotated[bool, typer.Option("--confidence-eos-eot-inf", help="Commit end tokens last, as LLaDA's option.")],
        False,
    ),
    "tempered_confidence": (
        Annotated[
            bool | None,
            typer.Option(
                "--tempered-confidence/--no-tempered-confidence",
                help="Rank candidates after temperature and top-p (Dream) or before (LLaDA). [default: the model's way]",
                show_default=False,
            ),
        ],
        None,
    ),
    "unmasking": (
        Annotated[str, typer.Option(help="Which masks are filled first; see `dise plugins`.")],
        "low-confidence",
    ),
    "length": (Annotated[str, typer.Option(help="How the length is chosen; see `dise plugins`.")], "fixed"),
    "n": (Annotated[int, typer.Option("--n", help="Answers to return per prompt, best score first.")], 1),
    "best_of": (Annotated[int | None, typer.Option(help="Answers to write per prompt; the best n are returned.")], None),
    "logprobs": (options.LogProbs, 0),
    "scorer": (options.ScorerName, "dise"),
    "selector": (options.SelectorName, None),
}
"""How answers are written and scored: fields of SamplingParams, by their names."""


@options.with_options(denoising=DENOISING_OPTIONS, engine=options.ENGINE_OPTIONS)
def generate(
    prompts: Annotated[list[str] | None, typer.Argument(help="Prompts; or give --input.", metavar="PROMPT...")] = None,
    model: options.Model = "countdown",
    input: options.Input = None,  # noqa: A002
    output: options.Output = None,
    resume: options.Resume = False,
    chat: options.Chat = None,
    unmasking_setting: Annotated[
        Pairs, typer.Option(help="A setting of the unmasking policy; may be repeated.", metavar="KEY=VALUE")
    ] = None,
    length_setting: Annotated[
        Pairs, typer.Option(help="A setting of the length controller; may be repeated.", metavar="KEY=VALUE")
    ] = None,
    scorer_setting: options.ScorerSettings = None,
    samples: options.Samples = None,
    judge: options.Judge = None,
    as_json: options.Json = False,
    debug: options.Debug = False,  # noqa: ARG001
    *,
    denoising: dict[str, Any],
    engine: options.Engine,
) -> None:
    """Write answers to prompts, each with how sure the model is of it."""
    from dise_app.cli import jsonl, render
    from dise_app.cli.memory import settled
    from dise_core import LLM, InputError, SamplingParams

    if bool(prompts) == (input is not None):
        raise InputError("give either prompts or --input FILE")
    if denoising["tokens_per_step"] is None:
        del denoising["tokens_per_step"]
    elif denoising["steps"] is not None:
        raise InputError("give either --steps or --tokens-per-step")
    params = SamplingParams(
        **denoising,
        unmasking_settings=options.settings(unmasking_setting),
        length_settings=options.settings(length_setting),
        scorer_settings=options.settings(scorer_setting, samples),
    )
    llm = settled(LLM(model, judge=judge, **engine))

    def plan_of(record: dict[str, Any]) -> Any:
        return llm.planner.generate(jsonl.text_or_ids(record, "prompt"), params, chat)

    if input is not None:
        jsonl.run_file(llm, input, output, plan_of, resume)
    else:
        policy = llm.catalog.unmasking_policy(params.unmasking, params.unmasking_settings)
        is_random = params.temperature > 0 or policy.is_random
        render.show(llm, [{"prompt": prompt} for prompt in prompts or []], plan_of, as_json, is_random)
