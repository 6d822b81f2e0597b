"""dise generate: write answers, each with its score."""

from __future__ import annotations

from typing import Annotated

import typer

from dise_app.cli import options
from dise_core.front.outputs import RequestOutput
from dise_core.params.requests import SamplingParams
from dise_core.plans.plan import Plan
from dise_core.records import Record

MOST_USED = ("model", "max_tokens", "temperature", "n", "seed", "scorer", "selector", "as_json")


@options.verb(
    *MOST_USED,
    shared=options.SHARED,
    files=options.FILES,
    models=options.MODELS,
    sampling=options.FieldOptions(SamplingParams),
    engine=options.ENGINE,
)
def generate(
    prompts: Annotated[
        list[str] | None,
        typer.Argument(
            help="Prompts; - is standard input, as one prompt. Or give --input, or pipe one in.",
            metavar="PROMPT",
        ),
    ] = None,
    *,
    parts: options.Parts,
) -> None:
    """Write answers, each with how sure the model is of it."""
    from dise_app.cli.answer import answer, load, refuse_both_or_neither
    from dise_app.files import jsonl
    from dise_app.terminal import piped
    from dise_core import InputError

    if not prompts and parts.files["input"] is None:
        prompts = piped.piped_texts()
    refuse_both_or_neither(bool(prompts), parts, "prompts")
    if {"steps", "tokens_per_step"} <= set(parts.sampling):
        raise InputError("give either --steps or --tokens-per-step")
    prompts = piped.given_texts(prompts or [])
    params = SamplingParams(**options.with_samples(parts.sampling, parts.shared["samples"]))
    llm = load(parts.models, parts.engine)
    policy = llm.catalog.unmasking_policy(params.unmasking, params.unmasking_settings)

    def plan_of(record: Record) -> Plan[RequestOutput]:
        return llm.planner.generate(
            jsonl.text_or_ids(record, "prompt"), params, parts.shared["chat"]
        )

    records: list[Record] = [{"prompt": prompt} for prompt in prompts]
    answer(llm, records, parts, params, plan_of, params.temperature > 0 or policy.is_random)
