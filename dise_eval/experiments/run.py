"""Runs the items that the journal lacks, as many at a time as the engine admits."""

from __future__ import annotations

import importlib.metadata
import platform
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

from dise_app.files.texts import write_json
from dise_core.scoring.calibration import fingerprint
from dise_eval.experiments.experiments import Experiment
from dise_eval.experiments.journal import Journal
from dise_eval.experiments.records import RecordT

PACKAGES = ("dise", "torch", "transformers", "tokenizers", "numpy", "scikit-learn", "matplotlib")


def run(
    experiment: Experiment[RecordT],
    output: Path,
    advance: Callable[[int], None],
    report: Callable[[list[RecordT]], None] = lambda _: None,
) -> list[RecordT]:
    """Return the record of every item, in order, resuming from the journal in `output`.

    advance: called with the number of items just finished; first with those of earlier
    runs.
    report: called with the records, before another run may write to `output`. Raises
    the InputError of an item that cannot run before the journal is opened and anything is
    computed. Later it raises the first error of an item; the journal then holds all items
    that ended before, and the next run tries the others again.
    """
    experiment.check()
    journal = Journal(output / "journal.jsonl", key_of(experiment), experiment.usual)
    try:
        items = experiment.items
        todo = [item for item in items if item.id not in journal.records]
        advance(len(items) - len(todo))
        _write_manifest(output, experiment)
        for outcome in experiment.outcomes(todo):
            journal.add(outcome.unwrap())
            advance(1)
        records = cast("list[RecordT]", [journal.records[item.id] for item in items])
        report(records)
        return records
    finally:
        journal.close()


def key_of(experiment: Experiment[RecordT]) -> dict[str, object]:
    """Return what records depend on. Runs with equal keys have equal records."""
    questions, llm = experiment.questions, experiment.llm
    return {
        "experiment": experiment.kind,
        "model": llm.predictor.info.name,
        "tokenizer": fingerprint(llm.predictor),
        "dataset": questions.dataset.name,
        "prompts": questions.dataset.version,
        "source": questions.source,
        "chat": questions.chat,
        "grader": experiment.grader,
        "settings": experiment.settings,
    }


def command_line() -> str | None:
    """Return the command that is running, a line for every 100 columns, without what does
    not change the figures: its folder, --json and --debug. None outside the command
    `dise`.
    """
    started, words = Path(sys.argv[0]), sys.argv[1:]
    if "dise" not in (started.stem, started.stem == "__main__" and started.parent.name):
        return None
    unchanging = ("--output=", "--json", "--debug")
    lines, options = ["dise"], (word for word in words if not word.startswith(unchanging))
    for word in options:
        if word == "--output":
            next(options, None)
        elif word.startswith("--") and len(lines[-1]) > 80:
            lines.append(shlex.quote(word))
        else:
            lines[-1] += f" {shlex.quote(word)}"
    return " \\\n    ".join([*lines[:-1], f"{lines[-1]} --output FOLDER"])


def versions() -> Iterator[tuple[str, str]]:
    """Yield (name, version) of Python and of packages that figures may depend on."""
    yield "python", platform.python_version()
    for name in PACKAGES:
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue


def _write_manifest(output: Path, experiment: Experiment[RecordT]) -> None:
    manifest = {
        **key_of(experiment),
        "num_questions": len(experiment.questions.items),
        "versions": dict(versions()),
        "machine": f"{platform.machine()} {platform.system()}",
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    write_json(output / "manifest.json", manifest)
