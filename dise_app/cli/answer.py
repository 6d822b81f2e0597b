"""What generate, score and rank share: loading a model, and answering requests."""

from __future__ import annotations

import sys
from collections.abc import Callable

from dise_app.cli.options import Parts
from dise_core.errors import InputError
from dise_core.front.llm import LLM
from dise_core.front.outputs import RequestOutput
from dise_core.params.engine import EngineConfig
from dise_core.params.marks import Mark, marked
from dise_core.params.requests import ScoringParams
from dise_core.plans.plan import Plan
from dise_core.records import Fields, Record


def load(models: Fields, engine: Fields) -> LLM:
    """Return the loaded model, exempt from garbage collection for the life of the process."""
    from dise_app.terminal import interrupts
    from dise_app.terminal.memory import settled
    from dise_app.terminal.progress import loading

    with loading(models["model"]):
        llm = settled(LLM(**models, **engine))
    interrupts.in_order()
    return llm


def answer(
    llm: LLM,
    records: list[Record],
    parts: Parts,
    params: ScoringParams,
    plan_of: Callable[[Record], Plan[RequestOutput]],
    shows_seed: bool = False,
) -> None:
    """Write the answers to --input's lines to --output, or print those to `records`."""
    from dise_app.files import jsonl
    from dise_app.terminal import live, render

    as_json = parts.shared["as_json"]
    if parts.files["input"] is not None:
        jsonl.run_file(llm, parts.files, plan_of, _settings(llm, parts, params))
    elif parts.command == "generate" and is_shown_live(records, as_json):
        live.show(llm, plan_of(records[0]), shows_seed)
    else:
        render.show(llm, records, plan_of, as_json, shows_seed)


def is_shown_live(records: list[Record], as_json: bool) -> bool:
    """Return whether the answer is shown while it is written: a single one, on a terminal."""
    return sys.stdout.isatty() and not as_json and len(records) == 1


def _settings(llm: LLM, parts: Parts, params: ScoringParams) -> Record:
    """Return what the answers to the lines of a file depend on, beside the lines, as JSON."""
    names = marked(EngineConfig, Mark.CHANGES_ANSWERS)
    engine = EngineConfig(**parts.engine).model_dump(mode="json", include=names)
    models = {role: predictor.info.name for role, predictor in llm.planner.predictors.items()}
    calibration = llm.planner.calibration
    return {
        "command": parts.command,
        "model": models["target"],
        "judge": models.get("judge"),
        **{name: parts.shared[name] for name in ("chat", "finished") if name in parts.shared},
        "calibration": None if calibration is None else calibration.digest,
        **engine,
        **params.model_dump(mode="json"),
    }


def refuse_both_or_neither(is_given: bool, parts: Parts, what: str) -> None:
    """Raise InputError unless exactly one is given: requests, or a file of them."""
    if is_given == (parts.files["input"] is not None):
        raise InputError(f"give either {what} or --input FILE; {shown_by(parts)}")


def shown_by(parts: Parts) -> str:
    """Return the end of an error about a verb's options."""
    return f"`dise {parts.command} --help` shows how"
