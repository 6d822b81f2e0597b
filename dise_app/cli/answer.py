"""What generate, score and rank share: a model, requests from the command line or a file,
answers.
"""

from __future__ import annotations

from collections.abc import Callable

from dise_core.errors import InputError
from dise_core.llm import LLM
from dise_core.outputs import RequestOutput
from dise_core.reading import Plan
from dise_core.records import Fields, Record

Records = list[Record]


def load(models: Fields, engine: Fields) -> LLM:
    """Return the loaded model, which stays until the process ends."""
    from dise_app.cli.memory import settled

    return settled(LLM(**models, **engine))


def answer(
    llm: LLM,
    records: Records,
    files: Fields,
    plan_of: Callable[[Record], Plan[RequestOutput]],
    as_json: bool,
    shows_seed: bool = False,
) -> None:
    """Answer the records and print the answers, or those of a file's lines and write them there."""
    from dise_app.cli import jsonl, render

    if files["input"] is not None:
        jsonl.run_file(llm, files["input"], files["output"], plan_of, files["resume"])
    else:
        render.show(llm, records, plan_of, as_json, shows_seed)


def refuse_both_or_neither(given: object, files: Fields, what: str) -> None:
    """Raise InputError unless either requests or a file of them are given."""
    if bool(given) == (files["input"] is not None):
        raise InputError(f"give either {what} or --input FILE")
