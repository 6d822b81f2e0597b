"""dise rank: which of these answers is the likeliest?"""

from __future__ import annotations

from typing import Annotated

import typer

from dise_app.cli import options
from dise_core.front.outputs import RequestOutput
from dise_core.params.requests import ScoringParams
from dise_core.plans.plan import Plan
from dise_core.records import Record


@options.verb(shared=options.SHARED, **options.SCORED)
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

    A scorer that estimates the log-likelihood given the prompt ranks by it, any other by its value.
    Lines of --input hold "prompt" (or "prompt_ids") and "candidates", a list of texts or of token
    ids.
    """
    from dise_app.cli.answer import answer, load, refuse_both_or_neither
    from dise_app.files import jsonl
    from dise_app.terminal import piped
    from dise_core import InputError

    refuse_both_or_neither(bool(candidates), parts, "candidates (with --prompt)")
    prompt, *candidates = piped.given_texts([prompt or "", *(candidates or [])])
    params = ScoringParams(**options.with_samples(parts.scoring, parts.shared["samples"]))
    llm = load(parts.models, parts.engine)

    def plan_of(record: Record) -> Plan[RequestOutput]:
        texts = record.get("candidates")
        if not isinstance(texts, list) or not texts:
            raise InputError('needs "candidates", a list of texts or of token ids', "candidates")
        checked = [
            jsonl.text_or_ids(
                {"candidate" if isinstance(c, str) else "candidate_ids": c}, "candidate"
            )
            for c in texts
        ]
        return llm.planner.rank(
            jsonl.optional_text_or_ids(record, "prompt"), checked, params, parts.shared["chat"]
        )

    answer(llm, [{"prompt": prompt, "candidates": candidates}], parts, params, plan_of)
