"""dise eval: the paper's experiments, one command each; a killed run resumes when run again."""

from __future__ import annotations

import functools
import importlib
import itertools
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dise_app import doors
from dise_app.cli import options
from dise_app.cli.grouped import GroupedCommand
from dise_core.params import SamplingParams, Scoring, ScoringParams
from dise_core.records import Fields, Record

if TYPE_CHECKING:
    from dise_app.evaluation.experiments import Experiment
    from dise_app.evaluation.questions import Questions
    from dise_app.evaluation.scoring import Contenders
    from dise_core import LLM

app = typer.Typer(
    no_args_is_help=True,
    help="Rerun the paper's experiments; each goes on where it stopped.",
    rich_markup_mode=None,
)

SCORES = (
    "dise:full",
    "dise:last-10",
    "dise:response-text",
    "interleaved:response-text",
    "mc:response:num_samples=1",
    "mc:response:num_samples=32",
)
"""The scorers compared by default: the paper's, and ours."""

CHOICE_SCORES = (
    "dise:full",
    "interleaved:response",
    "mc:response:num_samples=1",
    "mc:response:num_samples=32",
)
"""The same for candidates, compared with DiSE over the positions that the paper chose for the data
set.
"""


class GraderMode(StrEnum):
    """How answers are graded."""

    robust = "robust"
    d1 = "d1"


BASES = (128, 256, 512)
"""The paper's base lengths."""

DATA = options.Own(
    dataset=(
        Annotated[
            str,
            typer.Option(
                help="countdown, countdown-short, gsm8k, svamp, svamp-short, math500; for "
                "likelihood arc-challenge, gpqa, countdown-choice; for given countdown-answers."
            ),
        ],
        options.REQUIRED,
    ),
    data=(
        Annotated[Path | None, typer.Option(help="A local file of the data set, .json or .jsonl.")],
        None,
    ),
    data_revision=(
        Annotated[
            str | None, typer.Option(help="Branch, tag or commit of the data set on the hub.")
        ],
        None,
    ),
    shots=(Annotated[int, typer.Option(min=0, help="Worked examples before each question.")], 0),
    shots_file=(
        Annotated[
            Path | None,
            typer.Option(
                help="A local file of examples. [default: the training split]", show_default=False
            ),
        ],
        None,
    ),
    limit=(
        Annotated[int | None, typer.Option(min=1, help="Take the first so many questions.")],
        None,
    ),
    chat=(options.Chat, None),
)
"""The options for which questions are asked, and how."""

Output = Annotated[
    Path, typer.Option("--output", help="Folder for the journal, the report and the pictures.")
]
Scores = Annotated[
    list[str] | None,
    typer.Option(
        "--score",
        help=(
            "SCORER:SELECTOR:KEY=VALUE,...; may be repeated. [default: the paper's, and "
            "interleaved]"
        ),
        show_default=False,
    ),
]
Grading = Annotated[
    GraderMode, typer.Option("--grader", help="robust, or d1 as the field's common harness grades.")
]


def load_questions(data: Fields, seed: int) -> Questions:
    """Return the questions chosen by the options in DATA. seed: of a data set that is drawn."""
    from dise_app.evaluation import questions

    shots = questions.Shots(data["shots"], data["shots_file"])
    given = (data["dataset"], data["data"], data["limit"], seed, data["data_revision"], shots)
    return questions.load(*given, chat=data["chat"])


def load_compared(parts: options.Parts) -> tuple[LLM, Questions]:
    """Return the loaded model and the questions of a verb that compares ways to write."""
    from dise_app.cli.answer import load

    loaded = load_questions(parts.data, parts.sampling["seed"] or 0)
    return load(parts.models, parts.engine), loaded


def load_scored(parts: options.Parts, scores: Sequence[str]) -> tuple[LLM, Contenders]:
    """Return the loaded model, and the scorers with these specifications."""
    from dise_app.cli.answer import load
    from dise_app.evaluation.scoring import Contenders

    llm = load(parts.models, parts.engine)
    return llm, Contenders.of(scores, llm.catalog)


def sampled(write: str, about: str, scores: tuple[str, ...] = SCORES) -> options.Verb:
    """Return the verb that generates several answers per question, scores them and writes the
    report with the function `write`, as "module:function".
    """
    sampling = options.Fields(SamplingParams, doors.SAMPLED, temperature=0.7, n=5, seed=0)

    @options.verb(data=DATA, models=options.MODELS, sampling=sampling, engine=options.ENGINE_ALONE)
    @described(about)
    def command(
        output: Output,
        score: Scores = None,
        grader: Grading = GraderMode.robust,
        as_json: options.Json = False,
        *,
        parts: options.Parts,
    ) -> None:
        from dise_app.evaluation.experiments import Sampled
        from dise_core import InputError

        params = SamplingParams(**parts.sampling, logprobs=None)
        if params.n < 2:
            raise InputError(
                f"n={params.n}: it takes at least 2 answers to compare their scores", "n"
            )
        loaded = load_questions(parts.data, params.seed or 0)
        llm, contenders = load_scored(parts, score or scores)
        experiment = Sampled(llm, loaded, contenders, params, grader.value)
        finish(experiment, output, _function(write), as_json)

    return command


def described(about: str) -> Callable[[options.Verb], options.Verb]:
    """Return a decorator that sets a verb's help text."""

    def decorate(function: options.Verb) -> options.Verb:
        function.__doc__ = about
        return function

    return decorate


scored_verb = options.verb(
    data=DATA,
    models=options.MODELS,
    scoring=options.Fields(Scoring, doors.LIKELIHOOD),
    engine=options.ENGINE_ALONE,
)
"""The decorator shared by the verbs that score given texts."""


@scored_verb
def given(
    output: Output,
    score: Scores = None,
    by: Annotated[
        str | None, typer.Option(help="A field of --data: report its values apart.")
    ] = None,
    grader: Grading = GraderMode.robust,
    as_json: options.Json = False,
    *,
    parts: options.Parts,
) -> None:
    """Does each score tell right from wrong among given answers?

    Each is the "response" of a line of --data.
    """
    from dise_app.evaluation import report
    from dise_app.evaluation.experiments import Given

    loaded = load_questions(parts.data, 0)
    llm, contenders = load_scored(parts, score or SCORES)
    scoring = ScoringParams(**parts.scoring)
    experiment = Given(llm, loaded, contenders, scoring, grader.value, by)
    finish(experiment, output, report.given, as_json)


@scored_verb
def likelihood(
    output: Output,
    score: Scores = None,
    seed: Annotated[int, typer.Option(help="Of questions that are drawn.")] = 0,
    as_json: options.Json = False,
    *,
    parts: options.Parts,
) -> None:
    """How often is the likeliest candidate right, by each scorer?"""
    from dise_app.evaluation import report
    from dise_app.evaluation.experiments import Likelihood
    from dise_core import InputError

    loaded = load_questions(parts.data, seed)
    if not loaded.items[0].candidates:
        raise InputError(
            f"data set {parts.data['dataset']!r} has no candidates; take arc-challenge, gpqa or "
            "countdown-choice",
            "dataset",
        )
    chosen = [f"dise:{loaded.dataset.likelihood_selector}", *CHOICE_SCORES]
    llm, contenders = load_scored(parts, score or chosen)
    scoring = ScoringParams(**parts.scoring)
    finish(Likelihood(llm, loaded, contenders, scoring), output, report.likelihood, as_json)


LENGTH_SAMPLING = options.Fields(SamplingParams, doors.LENGTH, seed=0)
"""The sampling options of `length`, which each controller and base length varies."""


@options.verb(
    data=DATA, models=options.MODELS, sampling=LENGTH_SAMPLING, engine=options.ENGINE_ALONE
)
def length(
    output: Output,
    base_length: Annotated[
        list[int] | None,
        typer.Option(
            help=(
                "Base lengths L; may be repeated. [default: those of 128 256 512 that fit the "
                "model]"
            ),
            show_default=False,
        ),
    ] = None,
    patience: Annotated[
        list[int] | None,
        typer.Option(
            help="K of DiSE-flexible; may be repeated. [default: 2 3 4]", show_default=False
        ),
    ] = None,
    mask_size: Annotated[
        list[int] | None,
        typer.Option(help="D of DiSE-flexible; may be repeated. [default: 20]", show_default=False),
    ] = None,
    max_iterations: Annotated[int, typer.Option(help="M_max of DiSE-flexible.")] = 10,
    daedal: Annotated[bool, typer.Option(help="Compare with DAEDAL.")] = True,
    grader: Grading = GraderMode.robust,
    as_json: options.Json = False,
    *,
    parts: options.Parts,
) -> None:
    """What do length controllers solve, and what do they cost?"""
    from dise_app.evaluation import report
    from dise_app.evaluation.experiments import Lengths

    llm, loaded = load_compared(parts)
    params = functools.partial(SamplingParams, **parts.sampling, logprobs=None)
    variants: Record = {}
    for base in base_length or fitting_bases(llm, loaded, max_iterations):
        for fixed in (base, base + max_iterations):
            variants.setdefault(f"fixed, {fixed}", params(max_tokens=fixed, length="fixed"))
        for k, d in itertools.product(patience or (2, 3, 4), mask_size or (20,)):
            settings = {"patience": k, "mask_size": d, "max_iterations": max_iterations}
            variants[f"dise-flexible from {base}, K = {k}, D = {d}"] = params(
                max_tokens=base, length="dise-flexible", length_settings=settings
            )
        if daedal:
            variants[f"daedal from {base}"] = params(max_tokens=base, length="daedal")
    finish(
        Lengths(llm, loaded, variants, grader.value, max_iterations), output, report.length, as_json
    )


def fitting_bases(llm: LLM, loaded: Questions, max_iterations: int) -> tuple[int, ...]:
    """Return the paper's base lengths that the model has room for, naming the others on standard
    error.

    If none fits, returns all: the experiment then refuses them and says what would fit.
    """
    from dise_app.evaluation.experiments import prompt_lengths

    longest = max(prompt_lengths(llm, loaded).values())
    fitting = tuple(
        base for base in BASES if longest + base + max_iterations <= llm.predictor.info.max_length
    )
    left_out = [str(base) for base in BASES if base not in fitting]
    if fitting and left_out:
        print(
            f"dise: base length {' and '.join(left_out)} left out: with the longest prompt, "
            f"{longest} tokens, and "
            f"--max-iterations {max_iterations} it is longer than the model's limit of "
            f"{llm.predictor.info.max_length} tokens",
            file=sys.stderr,
        )
    return fitting or BASES


def finish(experiment: Experiment, output: Path, write: Callable[..., None], as_json: bool) -> None:
    """Run the experiment with a progress bar, write its report, and print it."""
    from dise_app.cli.progress import progress_bar
    from dise_app.evaluation.run import run

    with progress_bar(len(experiment.items)) as advance:
        run(experiment, output, advance, lambda records: write(experiment, records, output))
    print(
        (output / ("results.json" if as_json else "report.md")).read_text(encoding="utf-8"), end=""
    )


def _function(name: str) -> Callable[..., None]:
    """Return the function named "module:function", importing its module only now."""
    module, _, function = name.partition(":")
    found: Callable[..., None] = getattr(importlib.import_module(module), function)
    return found


app.command("uncertainty", cls=GroupedCommand)(
    sampled(
        "dise_app.evaluation.report:uncertainty",
        "Does each score tell right answers from wrong ones?",
    )
)
app.command("best-of-n", cls=GroupedCommand)(
    sampled(
        "dise_app.evaluation.report:best_of_n", "What does choosing an answer by its score gain?"
    )
)
app.command("given", cls=GroupedCommand)(given)
app.command("likelihood", cls=GroupedCommand)(likelihood)
app.command("length", cls=GroupedCommand)(length)
