"""dise eval revision: what revising answers gains beside other ways to spend forward passes."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from dise_app import doors
from dise_app.cli import options
from dise_app.cli.evaluate import DATA, GraderMode, Grading, Output, finish, load_compared
from dise_core.params import SamplingParams
from dise_core.records import Fields

RATES, THRESHOLDS, NUMBERS = (2, 4, 8), (0.7, 0.9, 0.97), (2, 4)

COMPARED = options.Own(
    rate=(
        Annotated[
            list[int] | None,
            typer.Option(
                help="Tokens a step; may be repeated. [default: 2 4 8]", show_default=False
            ),
        ],
        None,
    ),
    threshold=(
        Annotated[
            list[float] | None,
            typer.Option(
                help="Threshold of the reviser; may be repeated. [default: 0.7 0.9 0.97]",
                show_default=False,
            ),
        ],
        None,
    ),
    num_answers=(
        Annotated[
            list[int] | None,
            typer.Option(
                help="N of best-of-N; may be repeated. [default: 2 4]", show_default=False
            ),
        ],
        None,
    ),
    drawn_at=(Annotated[float, typer.Option(help="Temperature of best-of-N.")], 0.7),
    base_length=(
        Annotated[
            int | None,
            typer.Option(
                help="Length that dise-flexible and DAEDAL start from. [default: two thirds of "
                "--max-tokens]",
                show_default=False,
            ),
        ],
        None,
    ),
)
"""What is compared."""

SAMPLING = options.Fields(SamplingParams, doors.REVISION, seed=0, reviser="remask")


@options.verb(
    data=DATA,
    models=options.MODELS,
    compared=COMPARED,
    sampling=SAMPLING,
    engine=options.ENGINE_ALONE,
)
def revision(
    output: Output,
    grader: Grading = GraderMode.robust,
    as_json: options.Json = False,
    *,
    parts: options.Parts,
) -> None:
    """What does revising answers gain, beside other ways to spend forward passes?"""
    from dise_app.evaluation.revision import Revisions, report

    llm, loaded = load_compared(parts)
    variants = variants_of(parts.compared, parts.sampling)
    finish(Revisions(llm, loaded, variants, grader.value), output, report, as_json)


def variants_of(compared: Fields, sampling: Fields) -> dict[str, SamplingParams]:
    """Return the variants by their names, "GROUP, RATE a step"."""
    from dise_app.evaluation.revision import AS_WRITTEN

    plain = {name: sampling[name] for name in sampling if not name.startswith("reviser")}
    params = partial(SamplingParams, **plain, logprobs=None)
    most, reviser = params().max_tokens, sampling["reviser"]
    base = compared["base_length"] or max(1, most * 2 // 3)
    variants: dict[str, SamplingParams] = {}
    for rate in compared["rate"] or RATES:
        named, at = f", {rate} a step", partial(params, tokens_per_step=rate)
        variants[AS_WRITTEN + named] = at()
        for threshold in compared["threshold"] or THRESHOLDS:
            settings = {**sampling.get("reviser_settings", {}), "threshold": threshold}
            revised = at(reviser=reviser, reviser_settings=settings)
            variants[f"{reviser} {threshold:g}{named}"] = revised
        for number in compared["num_answers"] or NUMBERS:
            drawn = at(best_of=number, temperature=compared["drawn_at"])
            variants[f"best of {number}{named}"] = drawn
        flexible = at(max_tokens=base, length="dise-flexible")
        variants[f"dise-flexible from {base}{named}"] = flexible
    return {**variants, f"daedal from {base}": params(max_tokens=base, length="daedal")}
