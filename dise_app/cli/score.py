"""dise score: how sure is the model of a given text?"""

from typing import Annotated

import typer

from dise_app.cli import options
from dise_app.cli.answer import answer, refuse_both_or_neither, text_or_ids
from dise_app.files.runner import AnswerPlan
from dise_app.terminal.piped import given_texts, piped_texts
from dise_core import ScoringParams
from dise_core.front.planner import Planner
from dise_core.records import JsonFields

MOST_USED = ("prompt", "response", "model", "scorer", "selector", "as_json", "explain")


@options.verb(*MOST_USED, shared=options.SHARED, **options.SCORED)
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
    if response is None and parts.files["input"] is None:
        response = next(iter(piped_texts()), None)
    refuse_both_or_neither(response is not None, parts, "--response TEXT (with --prompt)")
    if response is not None:
        prompt, response = given_texts([prompt or "", response])
    params, chat = ScoringParams(**parts.scoring), parts.shared["chat"]

    def plan_of(planner: Planner, request: JsonFields, params: ScoringParams) -> AnswerPlan:
        prompt, response = text_or_ids(request, "prompt", ""), text_or_ids(request, "response")
        return planner.score(prompt, response, params, chat, **parts.ending)

    answer(parts, params, plan_of, [{"prompt": prompt, "response": response}])
