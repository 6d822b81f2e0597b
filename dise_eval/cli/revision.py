"""dise eval revision: what revising answers gains beside other ways to spend forward passes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from dise_app.cli import options
from dise_app.cli.grouped import GroupedCommand
from dise_app.cli.options import option
from dise_core.params.requests import SamplingParams
from dise_core.records import Fields, Record
from dise_eval.cli import doors
from dise_eval.cli.evaluate import COMMON, GRADED, app, finish, load, mode_of

if TYPE_CHECKING:
    from dise_eval.experiments.variants import Variant

RATES, THRESHOLDS, NUMBERS = (2, 4, 8), (0.7, 0.9, 0.97), (2, 4)

COMPARED = options.Own(
    rate=option(list[int] | None, "Tokens a step; may be repeated. [default: 2 4 8]"),
    threshold=option(
        list[float] | None, "Threshold of the reviser; may be repeated. [default: 0.7 0.9 0.97]"
    ),
    num_answers=option(list[int] | None, "N of best-of-N; may be repeated. [default: 2 4]"),
    drawn_at=option(float, "Temperature of best-of-N.", 0.7),
    base_length=option(
        int | None,
        "Length that dise-flexible and DAEDAL start from. [default: two thirds of --max-tokens]",
    ),
    composed=option(bool, "Revise the answers of best-of-N and of dise-flexible, too.", False),
)
SAMPLING = options.FieldOptions(SamplingParams, doors.REVISION, seed=0, reviser="remask")


@options.verb(**COMMON, models=options.MODELS, compared=COMPARED, graded=GRADED, sampling=SAMPLING)
def revision(*, parts: options.Parts) -> None:
    """What does revising answers gain?

    Beside other ways to spend forward passes.
    """
    from dise_eval.experiments.variants import Revisions

    llm, problems = load(parts, parts.sampling["seed"] or 0, parts.graded["grader"])
    variants = variants_of(parts.compared, parts.sampling)
    experiment = Revisions(llm, problems, variants, mode_of(parts))
    finish(experiment, parts.run, "variants:revision")


def variants_of(compared: Fields, sampling: Fields) -> list[Variant]:
    """Return the variants: at each rate the plain answers and the other ways to spend passes, and
    with what is revised the same answers with the reviser at each threshold; DAEDAL without a rate.
    """
    from dise_eval.experiments.variants import AS_WRITTEN, Variant

    plain = {name: sampling[name] for name in sampling if not name.startswith("reviser")}
    params = partial(SamplingParams, **plain, logprobs=None)
    base = compared["base_length"] or max(1, params().max_tokens * 2 // 3)
    variants: list[Variant] = []
    for rate in compared["rate"] or RATES:
        for way, fields in {AS_WRITTEN: {}, **_others(compared, base)}.items():
            at = partial(params, tokens_per_step=rate, **fields)
            unrevised = Variant(way, at(), rate=rate)
            variants.append(unrevised)
            if compared["composed"] or way == AS_WRITTEN:
                variants += [
                    Variant(way, at(**revised), name, rate, unrevised)
                    for name, revised in _revisers(compared, sampling).items()
                ]
    return [*variants, Variant(f"daedal from {base}", params(max_tokens=base, length="daedal"))]


def _revisers(compared: Fields, sampling: Fields) -> dict[str, Record]:
    reviser, settings = sampling["reviser"], sampling.get("reviser_settings", {})
    return {
        f"{reviser} {threshold:g}": {
            "reviser": reviser,
            "reviser_settings": {**settings, "threshold": threshold},
        }
        for threshold in compared["threshold"] or THRESHOLDS
    }


def _others(compared: Fields, base: int) -> dict[str, Record]:
    drawn: dict[str, Record] = {
        f"best of {number}": {"best_of": number, "temperature": compared["drawn_at"]}
        for number in compared["num_answers"] or NUMBERS
    }
    return {**drawn, f"dise-flexible from {base}": {"max_tokens": base, "length": "dise-flexible"}}


app.command("revision", cls=GroupedCommand)(revision)
