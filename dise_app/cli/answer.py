"""What generate, score and rank share: loading a model, and answering requests."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial

from dise_app.cli.options import Parts, runner_of
from dise_app.cli.suited import advise
from dise_app.files.runner import Answered, AnswerPlan, P, Work
from dise_app.terminal import interrupts
from dise_app.terminal.heap import kept
from dise_core import LLM, EngineConfig, InputError, Plan, SamplingParams, ScoringParams
from dise_core.front.planner import Planner
from dise_core.models.named import ModelName
from dise_core.params.base import Params
from dise_core.params.marks import Mark, marked
from dise_core.params.objects import with_names
from dise_core.plugins.discovery import installed_catalog
from dise_core.plugins.kinds import SCORER
from dise_core.records import Fields, JsonFields


def load(models: Fields, engine: Fields) -> LLM:
    """Return the loaded model, which garbage collection never visits."""
    llm = opened(models, engine)
    llm.load()
    return llm


def opened(models: Fields, engine: Fields) -> LLM:
    """Return the model. A request that needs its weights, or `load_for`, loads them."""
    from dise_app.terminal.progress import opening

    with opening(models["model"]), kept():
        return LLM(**models, **engine, lazy=True, shown=_loading)


@contextmanager
def _loading(model: str) -> Iterator[Callable[[float], None]]:
    from dise_app.terminal.progress import loading

    with loading(model) as show_share, kept():
        yield show_share
    interrupts.in_order()


def load_for(llm: LLM, plans: Iterable[Plan[object]]) -> None:
    """Load the weights if one of the plans passes its checks, and take no further plans
    then. The others' errors are reported when they are run.
    """
    if any(map(_gets_to_read, plans)):
        llm.load()
    interrupts.in_order()


def _gets_to_read(plan: Plan[object]) -> bool:
    with closing(plan):
        try:
            next(plan)
        except Exception:
            return False
    return True


def refuse_judge(parts: Parts, params: Params) -> None:
    """Raise InputError, before any weights are loaded, for an auto-regressive --model
    where the verb writes, or where the scorer needs a diffusion model.
    """
    from dise_adapters.checkpoint.hub import read_config

    config, catalog = EngineConfig(**parts.engine), installed_catalog()
    if not isinstance(params, ScoringParams):
        return
    writes = isinstance(params, SamplingParams)
    # A calibration may choose the scorer.
    if not writes and (
        config.calibration is not None or catalog.required(SCORER, params).asks == "judge"
    ):
        return
    model = parts.models["model"] = ModelName.of(parts.models["model"])  # `opened` finds it too
    if catalog.adapter(model, config.adapter, config.revision).load().trained_on != "next tokens":
        return
    read_config(model, config.revision)  # raises if it cannot be read
    if writes:
        raise InputError(
            f"{model!r} is an auto-regressive model, and `dise {parts.command}` writes with a "
            "diffusion language model: name one with --model, and this one with --judge",
            "model",
        )
    raise InputError(
        f"{model!r} is an auto-regressive model, and scorer {params.scorer!r} asks a diffusion "
        "language model: name one with --model, and this one with --judge; or score with this one "
        "alone, by --scorer ar-perplexity",
        "model",
    )


def answer(
    parts: Parts,
    params: P,
    plan_of: Callable[[Planner, JsonFields, P], AnswerPlan],
    requests: Sequence[JsonFields] = (),
) -> None:
    """Answer --input's lines to --output, or print the answers to the requests."""
    from dise_app.terminal import live, render

    explains, as_json = parts.shared["explain"], parts.shared["as_json"]

    def explained(planner: Planner, request: JsonFields, params: P) -> AnswerPlan:
        return plan_of(replace(planner, explains=explains), request, params)

    if parts.files["input"] is not None:
        return answer_file(parts, params, explained)
    refuse_judge(parts, params)
    llm = opened(parts.models, parts.engine)
    advise(llm, params)

    def plan(request: JsonFields) -> AnswerPlan:
        return explained(llm.planner, request, params)

    load_for(llm, map(plan, requests))
    if isinstance(params, SamplingParams) and is_shown_live(requests, as_json):
        return live.show(llm, plan(requests[0]), _is_random(llm, params))
    render.show(llm, requests, plan, as_json, _is_random(llm, params))


def answer_file(
    parts: Parts,
    params: P,
    plan_of: Callable[[Planner, JsonFields, P], Plan[Answered]],
    more_settings: Callable[[LLM], JsonFields] = lambda _: {},
) -> None:
    """Answer --input's lines. more_settings: what else answers depend on, as JSON."""
    from dise_app.files import jsonl

    refuse_judge(parts, params)

    def settings(llm: LLM) -> JsonFields:
        return {**settings_of(llm, parts, params), **more_settings(llm)}

    load = partial(opened, parts.models, parts.engine)
    work = Work(parts.command, parts.files, params, load, plan_of, settings, usual_of(params))
    if (runner := runner_of(parts.files)) is not None:
        return runner.run(work)
    llm = load()
    advise(llm, params)
    llm.planner.check(params)
    jsonl.run_file(work, llm, partial(load_for, llm))


def _is_random(llm: LLM, params: Params) -> bool:
    if not isinstance(params, SamplingParams):
        return False
    prepared = llm.planner.prepared(params)
    return prepared.asked.is_drawn or prepared.policy.is_random


def is_shown_live(records: Sequence[JsonFields], as_json: bool) -> bool:
    """Return whether a single answer is shown on a terminal while it is written."""
    return sys.stdout.isatty() and not as_json and len(records) == 1


def settings_of(llm: LLM, parts: Parts, params: Params) -> dict[str, object]:
    """Return what the answers to a file depend on beside its lines, as JSON."""
    names = marked(EngineConfig, Mark.CHANGES_ANSWERS)
    engine = llm.config.model_dump(mode="json", include=names)
    models = {role: predictor.info.name for role, predictor in llm.planner.predictors.items()}
    calibration = llm.planner.calibration
    return {
        "command": parts.command,
        "model": models["target"],
        "judge": models.get("judge"),
        **{name: parts.shared[name] for name in ("chat",) if name in parts.shared},
        **({"explain": True} if parts.shared.get("explain") else {}),
        **vars(parts).get("ending", {}),
        "calibration": None if calibration is None else calibration.digest,
        **engine,
        **with_names(llm.planner.own(params)).model_dump(mode="json"),
    }


def usual_of(params: Params) -> dict[str, object]:
    """Return the defaults of the options among what `settings_of` and verbs of files return."""
    names = marked(EngineConfig, Mark.CHANGES_ANSWERS)
    return {
        **dict.fromkeys(("judge", "chat", "finished", "calibration")),
        "explain": False,
        "questions": [],
        **EngineConfig().model_dump(mode="json", include=names),
        **type(params).model_construct().model_dump(mode="json"),
    }


def refuse_both_or_neither(is_given: bool, parts: Parts, requests: str) -> None:
    """Raise InputError unless either requests are given or a file of them, and for
    options about that file's answers without it. requests: what the error calls them.
    """
    files = parts.files
    if is_given == (files["input"] is not None):
        raise InputError(
            f"give either {requests} or --input FILE; `dise {parts.command} --help` shows how"
        )
    for name in ("output", "resume", "overwrite"):
        if is_given and files[name]:
            raise InputError(
                f"--{name} is about the answers to the lines of --input FILE: give that, or leave "
                f"out --{name}; --json prints one answer as JSON",
                name,
            )


def text_or_ids(request: JsonFields, field: str, default: str | None = None) -> str | list[int]:
    """Return request[field], its "_ids" or the default. Raises InputError for both or
    none.
    """
    text, ids = request.get(field), request.get(f"{field}_ids")
    if text is None and ids is None and default is not None:
        return default
    if (text is None) == (ids is None):
        raise InputError(f'needs either "{field}" (text) or "{field}_ids" (token ids)', field)
    if ids is not None:
        if not isinstance(ids, list) or not all(type(token_id) is int for token_id in ids):
            raise InputError(f'"{field}_ids" must be a list of integers', field)
        return ids
    if not isinstance(text, str):
        raise InputError(f'"{field}" must be a text, not {text!r:.40}', field)
    return text
