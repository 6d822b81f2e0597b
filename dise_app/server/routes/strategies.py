"""GET /v1/strategies: the names and the options that a request may use."""

import inspect
from functools import cache

from fastapi import FastAPI

from dise_app.server.limits import Limits
from dise_app.server.schemas.requests import MAX_ANSWERS, Completion
from dise_app.server.service import Service
from dise_app.settings import settings_of, settings_or_problem
from dise_core import (
    AsyncLLM,
    Catalog,
    InputError,
    PluginError,
    SamplingParams,
    Scorer,
    ScoringParams,
)
from dise_core.front.planner import Planner
from dise_core.plugins.entry import Entry
from dise_core.plugins.kinds import Kind, kinds_named_by
from dise_core.records import Record
from dise_core.scoring.strategy import Strategy


def add_strategies(app: FastAPI, service: Service) -> None:
    """Add the route, whose answer is made once: a loaded model does not change."""

    @cache
    def answer() -> Record:
        llm = service.llm
        data = [
            _strategy(kind, name, entry, llm.planner)
            for kind in kinds_named_by(SamplingParams)
            for name, entry in getattr(llm.catalog, kind.plural).items()
        ]
        described = {"options": options(service.limits, llm.catalog), "model": facts(llm)}
        return {"object": "list", "data": data, **described}

    @app.get("/v1/strategies")
    async def strategies() -> Record:
        return answer()


def _strategy(
    kind: Kind[Strategy], name: str, entry: Entry[type[Strategy]], planner: Planner
) -> Record:
    cls, about, problem, settings = None, "", None, list[Record]()
    try:
        cls = entry.load()
        about = inspect.getdoc(cls) or ""
        settings, problem = settings_or_problem(cls)
    except PluginError as error:
        problem = str(error)
    record: Record = {
        "kind": kind.title,
        "option": kind.option,
        "name": name,
        "plugin": entry.plugin,
        "is_built_in": entry.is_built_in,
        "about": about,
        "settings": settings,
        "problem": problem,
    }
    if isinstance(cls, type) and issubclass(cls, Scorer):
        record["default_selector"] = cls.default_selector
        record["problem"] = problem or _refusal(planner, name, entry, cls)
    return record


def _refusal(
    planner: Planner, name: str, entry: Entry[type[Strategy]], cls: type[Scorer]
) -> str | None:
    """Return why a scorer cannot score with its defaults, if it has them all."""
    if any(field.is_required() for field in cls.model_fields.values()):
        return None
    try:
        planner.check_scorer(name, planner.catalog.scorer(name))
    except InputError as error:
        return str(error)
    except Exception as error:
        return str(entry.failure(f"scorer {name!r} does not tell what it needs", error))
    return None


def options(limits: Limits, catalog: Catalog) -> list[Record]:
    """Return a completion's options, and whether each is the request's or `dise`'s. Those
    that name a kind of which nothing is installed are left out.
    """
    kinds = kinds_named_by(SamplingParams)
    of_strategies = (f"{kind.option}_settings" for kind in kinds)
    unusable = (kind.option for kind in kinds if not getattr(catalog, kind.plural))
    left_out = {"logprobs", "cache_salt", *of_strategies, *unusable}
    options = list[Record]()
    for setting in settings_of(SamplingParams):
        if (name := setting["name"]) not in left_out:
            place = "request" if name in Completion.model_fields else "dise"
            doors = {"in": place, "scores": name in ScoringParams.model_fields}
            options.append(setting | _allowed(setting, limits) | doors)
    return options


def _allowed(setting: Record, limits: Limits) -> Record:
    """Return the server's limit, where it is below the library's, and its default."""
    bounds = {"max_tokens": limits.max_tokens_limit, "n": MAX_ANSWERS, "best_of": MAX_ANSWERS}
    name = setting["name"]
    maximum = {"maximum": min(setting["maximum"], bounds[name])} if name in bounds else {}
    return maximum | ({"default": limits.default[name]} if name in limits.default else {})


def facts(llm: AsyncLLM) -> Record:
    """Return what requests depend on: the loaded model, its judge and calibration."""
    info, calibration = llm.predictor.info, llm.planner.calibration
    judge = llm.planner.predictors.get("judge")
    fields = {"scorer", "selector", "scorer_settings", "selector_settings"}
    fields |= {"num_labels", "figures", "threshold"}
    fitted = calibration and calibration.model_dump(mode="json", include=fields)
    return {
        "name": info.name,
        "max_length": info.max_length,
        "block_length": info.block_length,
        "has_chat_template": llm.predictor.tokenizer.has_chat_template,
        "judge": None if judge is None else judge.info.name,
        "calibration": fitted,
    }
