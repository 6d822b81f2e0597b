"""dise score: how sure is the model of a given text?"""

from __future__ import annotations

from typing import Annotated

import typer

from dise_app.cli import options
from dise_core.front.outputs import RequestOutput
from dise_core.params.requests import ScoringParams
from dise_core.plans.plan import Plan
from dise_core.records import Record

FINISHED = options.option(
    bool | None,
    "Whether responses end where they end, and are read with an end token after them. "
    "Without it texts do, and token ids are taken as they are.",
    None,
    "--finished/--unfinished",
)


@options.verb(shared=options.Own(**options.SHARED.options, finished=FINISHED), **options.SCORED)
def score(
    prompt: Annotated[
        str | None, typer.Option(help="The prompt; without it the response is a text of its own.")
    ] = None,
    response: Annotated[
        str | None,
        typer.Option(
            help="The response to score; - is standard input. Or give --input, or pipe it in."
        ),
    ] = None,
    *,
    parts: options.Parts,
) -> None:
    """Score a given response, or each of a file.

    Lines of --input hold "prompt" and "response" (or "prompt_ids", "response_ids").
    """
    from dise_app.cli.answer import answer, load, refuse_both_or_neither
    from dise_app.files import jsonl
    from dise_app.terminal import piped

    if response is None and parts.files["input"] is None:
        response = next(iter(piped.piped_texts()), None)
    refuse_both_or_neither(response is not None, parts, "--response TEXT (with --prompt)")
    if response is not None:
        prompt, response = piped.given_texts([prompt or "", response])
    params = ScoringParams(**options.with_samples(parts.scoring, parts.shared["samples"]))
    llm = load(parts.models, parts.engine)

    def plan_of(record: Record) -> Plan[RequestOutput]:
        prompt = jsonl.optional_text_or_ids(record, "prompt")
        response, shared = jsonl.text_or_ids(record, "response"), parts.shared
        return llm.planner.score(prompt, response, params, shared["chat"], shared["finished"])

    answer(llm, [{"prompt": prompt, "response": response}], parts, params, plan_of)
