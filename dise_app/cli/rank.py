"""dise rank: which of these answers is the likeliest?"""

from typing import Annotated

import typer

from dise_app.cli import options
from dise_app.cli.answer import answer, refuse_both_or_neither, text_or_ids
from dise_app.files.runner import AnswerPlan
from dise_app.terminal.piped import given_texts
from dise_core import InputError, ScoringParams
from dise_core.front.planner import Planner
from dise_core.records import JsonFields

MOST_USED = ("prompt", "model", "scorer", "selector", "as_json")


@options.verb(*MOST_USED, shared=options.SHARED, **options.SCORED)
def rank(
    candidates: Annotated[
        list[str] | None,
        typer.Argument(help="Candidate answers; or give --input.", metavar="CANDIDATE"),
    ] = None,
    prompt: Annotated[
        str | None, typer.Option(help="The prompt that they answer; - is standard input.")
    ] = None,
    *,
    parts: options.Parts,
) -> None:
    """Order candidate answers by their likelihood, best first.

    A scorer that estimates the log-likelihood given the prompt ranks by it, any other by
    its value. Nothing follows a candidate, as an end token does a text of `dise score`,
    unless --finished. Lines of --input hold "prompt" (or "prompt_ids") and "candidates",
    a list of texts or of token ids.
    """
    refuse_both_or_neither(bool(candidates), parts, "candidates (with --prompt)")
    if candidates and len(candidates) == 1:
        raise InputError(
            "rank orders two candidates or more, and this is one: every argument is a candidate, "
            "and the prompt is given by --prompt; `dise score` scores a single text",
            "candidates",
        )
    prompt, *candidates = given_texts([prompt or "", *(candidates or [])])
    params = ScoringParams(**parts.scoring)

    def plan_of(planner: Planner, request: JsonFields, params: ScoringParams) -> AnswerPlan:
        texts = request.get("candidates")
        if not isinstance(texts, list) or not texts:
            raise InputError('needs "candidates", a list of texts or of token ids', "candidates")
        fields = ["candidate" if isinstance(text, str) else "candidate_ids" for text in texts]
        checked = [
            text_or_ids({field: text}, "candidate")
            for field, text in zip(fields, texts, strict=True)
        ]
        prompt = text_or_ids(request, "prompt", "")
        return planner.rank(prompt, checked, params, parts.shared["chat"], **parts.ending)

    answer(parts, params, plan_of, [{"prompt": prompt, "candidates": candidates}])
