"""dise eval revision: what revising answers gains beside other ways to spend forward passes."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from dise_app import doors
from dise_app.cli import options
from dise_app.cli.evaluate import DATA, GraderMode, Grading, Output, finish, load_compared
from dise_core.params import SamplingParams
from dise_core.records import Fields, Record

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
    composed=(
        Annotated[
            bool, typer.Option(help="Revise the answers of best-of-N and of dise-flexible, too.")
        ],
        False,
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
    """What does revising answers gain?

    Beside other ways to spend forward passes.
    """
    from dise_app.evaluation.revision import Revisions, report

    llm, loaded = load_compared(parts)
    variants = variants_of(parts.compared, parts.sampling)
    finish(Revisions(llm, loaded, variants, grader.value), output, report, as_json)


def variants_of(compared: Fields, sampling: Fields) -> dict[str, SamplingParams]:
    """Return the variants by their names, "GROUP, RATE a step"; where the answers of a group are
    revised, "GROUP + REVISER THRESHOLD, RATE a step".
    """
    from dise_app.evaluation.revision import AS_WRITTEN

    plain = {name: sampling[name] for name in sampling if not name.startswith("reviser")}
    params = partial(SamplingParams, **plain, logprobs=None)
    base = compared["base_length"] or max(1, params().max_tokens * 2 // 3)
    variants: dict[str, SamplingParams] = {}
    for rate in compared["rate"] or RATES:
        named, revisers = f", {rate} a step", _revisers(compared, sampling)
        at = partial(params, tokens_per_step=rate)
        variants[AS_WRITTEN + named] = at()
        variants |= {revised + named: at(**fields) for revised, fields in revisers.items()}
        for group, its in _others(compared, base).items():
            variants[group + named] = at(**its)
            for revised, fields in revisers.items() if compared["composed"] else ():
                variants[f"{group} + {revised}{named}"] = at(**its, **fields)
    return {**variants, f"daedal from {base}": params(max_tokens=base, length="daedal")}


def _revisers(compared: Fields, sampling: Fields) -> dict[str, Record]:
    """Return the fields of the reviser at each threshold, by its name."""
    reviser, settings = sampling["reviser"], sampling.get("reviser_settings", {})
    return {
        f"{reviser} {threshold:g}": {
            "reviser": reviser,
            "reviser_settings": {**settings, "threshold": threshold},
        }
        for threshold in compared["threshold"] or THRESHOLDS
    }


def _others(compared: Fields, base: int) -> dict[str, Record]:
    """Return the fields of the other ways to spend passes at a rate, by their names."""
    drawn: dict[str, Record] = {
        f"best of {number}": {"best_of": number, "temperature": compared["drawn_at"]}
        for number in compared["num_answers"] or NUMBERS
    }
    return {**drawn, f"dise-flexible from {base}": {"max_tokens": base, "length": "dise-flexible"}}
