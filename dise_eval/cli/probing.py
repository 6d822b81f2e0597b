"""The paper's analyses: of scores, and of the model's own answers or given texts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dise_app.cli import options
from dise_app.cli.options import option
from dise_core.params.requests import SamplingParams
from dise_eval.cli import doors, evaluate
from dise_eval.experiments.usual import FIXED

if TYPE_CHECKING:
    from dise_eval.datasets.questions import ProblemSet

SELECTORS = (
    *("full", "response", "response-text"),
    *("first-10", "mid-10", "last-10", "last-5", "last-20", "first-blocks-1", "last-block"),
)
CORRECTNESS = ("dise:full", "dise:last-10")

PROBED = options.Own(
    texts=option(
        Path | None,
        'JSON lines with "id" and "response": natural texts to probe instead of the model\'s own '
        "answers.",
    ),
    trials=option(
        int | None,
        "Positions probed in each text. [default: 80 for ranks, 10 for distances]",
        min=1,
    ),
)


def probe(name: str, about: str) -> options.Verb:
    """Return the verb of a probe of the model's own answers, or of those in --texts."""
    sampling = options.FieldOptions(SamplingParams, doors.PROBED, **FIXED)

    def command(*, parts: options.Parts) -> None:
        from dise_core import InputError
        from dise_eval.analysis import probes

        if name == "coherence" and parts.probed["trials"]:
            raise InputError("--trials is about ranks and distances: leave it out.", "trials")
        params = SamplingParams(**parts.sampling)
        llm, problems = evaluate.load(parts, params.seed or 0)
        texts, trials = _responses(parts.probed["texts"], problems), parts.probed["trials"]
        experiment = probes.PROBES[name](llm, problems, params, texts, trials)
        evaluate.finish(experiment, parts.run, f"probes:{name}")

    command.__doc__ = about
    tables = {"models": options.TARGET, "probed": PROBED}
    most_used = "dataset", "output", "model", "limit", "max_tokens", "seed", "as_json"
    return options.verb(*most_used, **evaluate.COMMON, **tables, sampling=sampling)(command)


def _responses(path: Path | None, loaded: ProblemSet) -> dict[str, str]:
    from dise_app.files import jsonl
    from dise_core import InputError

    responses: dict[str, str] = {}
    ids = {question.id for question in loaded.items}
    for line in jsonl.read_lines(path) if path is not None else ():
        if line.problem is not None:
            raise InputError(f"line {line.number} of {path} {line.problem}", "texts")
        question, response = str(line.record.get("id")), line.record.get("response")
        if not isinstance(response, str) or question not in ids:
            raise InputError(
                f'line {line.number} of {path} needs a text as "response", and as "id" that of a '
                "question",
                "texts",
            )
        responses[question] = response
    return responses


VERBS = {
    "correctness": evaluate.drawing(
        "uncertainty:correctness", "Are right answers scored above wrong ones?", CORRECTNESS
    ),
    "selectors": evaluate.drawing(
        "uncertainty:selectors",
        "Which positions should DiSE be taken over?",
        tuple(f"dise:{name}" for name in SELECTORS),
    ),
    "ranks": probe("ranks", "How high does the true token rank under a random one?"),
    "distances": probe("distances", "How far apart are true, masked and random predictions?"),
    "coherence": probe("coherence", "How much surer is the model of natural than of random text?"),
}
