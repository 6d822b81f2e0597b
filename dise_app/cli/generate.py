"""dise generate: write answers, each with its score."""

from typing import Annotated

import typer

from dise_app.cli import options
from dise_app.cli.answer import answer, refuse_both_or_neither, text_or_ids
from dise_app.files.runner import AnswerPlan
from dise_app.terminal.piped import given_texts, piped_texts
from dise_core import SamplingParams
from dise_core.front.planner import Planner
from dise_core.records import JsonFields

MOST_USED = ("model", "max_tokens", "temperature", "n", "seed", "scorer", "selector", "as_json")


@options.verb(*MOST_USED, shared=options.SHARED, **options.WRITTEN)
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
    if not prompts and parts.files["input"] is None:
        prompts = piped_texts()
    refuse_both_or_neither(bool(prompts), parts, "prompts")
    requests = [{"prompt": prompt} for prompt in given_texts(prompts or [])]
    params = options.sampling_params(parts)

    def plan_of(planner: Planner, request: JsonFields, params: SamplingParams) -> AnswerPlan:
        return planner.generate(text_or_ids(request, "prompt"), params, parts.shared["chat"])

    answer(parts, params, plan_of, requests)
