"""Experiments on answers: drawn, given and ranked ones."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from dise_app.cli import options
from dise_app.cli.options import option
from dise_core.files import opened_file
from dise_core.params.requests import SamplingParams, Scoring, ScoringParams
from dise_core.plugins.discovery import installed_plugins
from dise_core.records import Fields
from dise_eval.cli import doors
from dise_eval.experiments import usual

if TYPE_CHECKING:
    from dise_core import LLM
    from dise_eval.datasets.questions import ProblemSet
    from dise_eval.experiments.experiments import Experiment
    from dise_eval.experiments.records import RecordT
    from dise_eval.experiments.scoring import Contenders
    from dise_eval.graders import Mode


SCORES = (
    "dise:full",
    "dise:last-10",
    "dise:response-text",
    "interleaved:response-text",
    "mc:response:num_samples=1",
    "mc:response:num_samples=32",
)

CHEAP_SCORES = (
    *SCORES[:4],
    *("shadow:response-text", "written:last-10", "written:last-10:signal=entropy"),
    *("written:response-text", "written:response-text:aggregate=least"),
    "written:response-text:signal=margin",
)
"""Those of at most two passes."""

CHOICE_SCORES = (
    "dise:full",
    "interleaved:response",
    "mc:response:num_samples=1",
    "mc:response:num_samples=32",
)
"""Those for candidates, beside DiSE over the paper's positions for the data set."""

WITHOUT_MASKS = ("dise", "loo", "interleaved")
"""Those of a model of uniform noise, whose canvases predict no token of a prompt."""

MODES = ("robust", "d1")

DATA = options.Own(
    dataset=option(
        str,
        f"{', '.join(installed_plugins().datasets)}; or a file of your own, ./NAME.jsonl.",
        options.REQUIRED,
    ),
    data=option(Path | None, "A local file of the data set, .json or .jsonl."),
    data_revision=option(str | None, "Branch, tag or commit of the data set on the hub."),
    shots=option(int, "Worked examples before each question.", 0, min=0),
    shots_file=option(Path | None, "A local file of examples. [default: the training split]"),
    limit=option(int | None, "Take the first so many questions.", min=1),
    chat=(options.Chat, None),
)
RUN = options.Own(
    output=option(Path, "Folder for the journal, the report and the pictures.", options.REQUIRED),
    as_json=(options.Json, False),
)
SCORED = options.Own(
    score=option(
        list[str] | None,
        "SCORER:SELECTOR:KEY=VALUE,...; may be repeated. [default: the paper's, and interleaved]",
    )
)
GRADED = options.Own(
    grader=option(
        str,
        "robust, or d1 as the field's common harness grades; or the grader of answers to your own "
        "questions: number, math, countdown, choice, text.",
        "robust",
    )
)
COMMON: dict[str, options.Table] = {"run": RUN, "data": DATA, "engine": options.ENGINE_ALONE}
COMPARED = {**COMMON, "models": options.MODELS}
MOST_USED = ("dataset", "output", "model", "limit", "score", "as_json")


def load(parts: options.Parts, seed: int = 0, grader: str | None = None) -> tuple[LLM, ProblemSet]:
    """Return model and questions, if --output takes files and there is each scorer of
    --score. seed: of drawn questions.
    """
    from dise_app.cli import answer
    from dise_app.files.texts import check_folder
    from dise_core.plugins.discovery import installed_catalog
    from dise_eval.datasets import questions
    from dise_eval.experiments.scoring import Contenders

    check_folder(parts.run["output"])
    names = vars(parts).get("scored", {"score": None})["score"]
    Contenders.of(names or (), installed_catalog())
    data = parts.data
    problems = questions.load(
        data["dataset"],
        data["data"],
        data["limit"],
        seed,
        data["data_revision"],
        questions.Shots(data["shots"], data["shots_file"]),
        data["chat"],
        None if grader in MODES else grader,
    )
    return answer.load(parts.models, parts.engine), problems


def mode_of(parts: options.Parts) -> Mode:
    """Return the mode that --grader names. Any other grader has the robust one."""
    return "d1" if parts.graded["grader"] == "d1" else "robust"


def contenders_of(parts: options.Parts, llm: LLM, default: Sequence[str]) -> Contenders:
    """Return the scorers that --score names."""
    from dise_eval.experiments.scoring import Contenders

    contenders = Contenders.of(parts.scored["score"] or default, llm.catalog)
    return replace(contenders, usual=tuple(default))


def selecting(selector: str) -> tuple[str, ...]:
    """Return the usual scorers of a model of uniform noise, over those tokens."""
    return tuple(f"{scorer}:{selector}" for scorer in WITHOUT_MASKS)


def labels_begun(output: Path) -> list[str]:
    """Return the scorers of the experiment in the folder, none without one."""
    with (
        contextlib.suppress(OSError, ValueError, LookupError, TypeError),
        opened_file(output / "journal.jsonl") as journal,
    ):
        return list(json.loads(journal.readline())["settings"]["scorers"])
    return []


def drawing(reporter: str, about: str, scores: tuple[str, ...] = SCORES) -> options.Verb:
    """Return a verb that draws and scores answers. reporter: "module:function"."""
    sampling = options.FieldOptions(
        SamplingParams, doors.SAMPLED, unfilled=("temperature",), **usual.DRAWN
    )

    def command(*, parts: options.Parts) -> None:
        from dise_core import InputError, RenoisingPolicy
        from dise_core.plugins.kinds import UNMASKING
        from dise_eval.experiments.experiments import Sampled

        params = SamplingParams(**parts.sampling)
        if params.n < 2:
            raise InputError(
                f"n={params.n}: it takes at least 2 answers to compare their scores", "n"
            )
        llm, problems = load(parts, params.seed or 0, parts.graded["grader"])
        info = llm.predictor.info
        unable = () if "shadow" in llm.predictor.abilities else ("shadow",)
        able = [score for score in scores if not score.startswith(unable)]
        if info.noise == "uniform":
            able = [*selecting("last-10"), *selecting("response-text"), "written:response-text"]
        params = llm.planner.own(params)
        policy = llm.catalog.required(UNMASKING, params)
        has_own = info.writes_canvases or isinstance(policy, RenoisingPolicy)  # temperatures
        if "temperature" not in parts.sampling and not has_own:
            params = params.model_copy(update={"temperature": usual.DRAWN["temperature"]})
        contenders = contenders_of(parts, llm, labels_begun(parts.run["output"]) or able)
        finish(Sampled(llm, problems, contenders, params, mode_of(parts)), parts.run, reporter)

    command.__doc__ = about
    most_used = *MOST_USED, "n", "max_tokens", "temperature", "seed"
    return options.verb(*most_used, **COMPARED, scored=SCORED, graded=GRADED, sampling=sampling)(
        command
    )


SCORING = options.FieldOptions(Scoring, doors.NAMED_BY_SCORE)
GROUPED = options.Own(by=option(str | None, "A field of --data: report its values apart."))
DRAWN = options.Own(seed=option(int, "Of questions that are drawn.", 0))


@options.verb(
    *MOST_USED, **COMPARED, scored=SCORED, grouped=GROUPED, graded=GRADED, scoring=SCORING
)
def given(*, parts: options.Parts) -> None:
    """Does each score tell right from wrong among given answers?

    Each is the "response" of a line of --data.
    """
    from dise_eval.experiments.experiments import GivenAnswers

    llm, problems = load(parts, grader=parts.graded["grader"])
    default = SCORES if llm.predictor.info.noise == "masks" else selecting("response-text")
    contenders, scoring = contenders_of(parts, llm, default), ScoringParams(**parts.scoring)
    mode, by = mode_of(parts), parts.grouped["by"]
    experiment = GivenAnswers(llm, problems, contenders, scoring, mode, by)
    finish(experiment, parts.run, "uncertainty:given")


@options.verb(
    *MOST_USED, **COMPARED, scored=SCORED, drawn=DRAWN, scoring=SCORING, ending=options.ENDING
)
def likelihood(*, parts: options.Parts) -> None:
    """How often is the likeliest candidate right, by each scorer?

    Nothing follows a candidate, unless --finished.
    """
    from dise_core import InputError
    from dise_eval.experiments.experiments import Likelihood

    llm, problems = load(parts, parts.drawn["seed"])
    if not problems.items[0].candidates:
        raise InputError(
            f"data set {parts.data['dataset']!r} has no candidates; take arc-challenge, gpqa or "
            "countdown-choice",
            "dataset",
        )
    default: tuple[str, ...] = selecting("response")
    if llm.predictor.info.noise == "masks":
        default = (f"dise:{problems.dataset.likelihood_selector}", *CHOICE_SCORES)
    contenders = contenders_of(parts, llm, default)
    scoring, finished = ScoringParams(**parts.scoring), bool(parts.ending.get("finished"))
    experiment = Likelihood(llm, problems, contenders, scoring, finished)
    finish(experiment, parts.run, "choosing:likelihood")


def finish(experiment: Experiment[RecordT], run: Fields, reporter: str) -> None:
    """Run the experiment, and print the report in short. reporter: "module:function"."""
    from dise_app.terminal.progress import progress_bar
    from dise_eval.experiments.run import run as run_experiment
    from dise_eval.reports.page import Report, write

    report: Callable[..., Report] = resolve_name(f"dise_eval.reports.{reporter}")
    output, reports = run["output"], list[Report]()

    def tell(records: list[RecordT]) -> None:
        reports.append(report(experiment, records))
        write(output, experiment, reports[-1])

    with progress_bar(len(experiment.items)) as advance:
        run_experiment(experiment, output, advance, tell)
    if run["as_json"]:
        print((output / "results.json").read_text(encoding="utf-8"), end="")
    else:
        print(reports[-1].plain(output))


VERBS = {
    "uncertainty": drawing(
        "uncertainty:uncertainty",
        "Does each score tell right answers from wrong ones?\n\n"
        "Without --score, and in a new folder: DiSE over three selectors, shadow, interleaved with "
        "two groups, and what is written: of the response and of its end, the mean, the least, the "
        "entropy and margin. None takes more than two passes.",
        CHEAP_SCORES,
    ),
    "best-of-n": drawing("choosing:best_of_n", "What does choosing an answer by its score gain?"),
    "given": given,
    "likelihood": likelihood,
}
