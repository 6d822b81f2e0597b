"""What generate, score and rank share: loading a model, and answering requests from the command
line or a file.
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
    """Return the loaded model, exempt from garbage collection for the life of the process."""
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
    """Answer the lines of --input and write the answers to --output, or else answer `records` and
    print the answers.
    """
    from dise_app.cli import jsonl, render

    if files["input"] is not None:
        jsonl.run_file(llm, files["input"], files["output"], plan_of, files["resume"])
    else:
        render.show(llm, records, plan_of, as_json, shows_seed)


def refuse_both_or_neither(given: object, files: Fields, what: str) -> None:
    """Raise InputError unless exactly one is given: requests, or a file of them."""
    if bool(given) == (files["input"] is not None):
        raise InputError(f"give either {what} or --input FILE")
