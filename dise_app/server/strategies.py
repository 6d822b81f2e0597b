"""GET /v1/strategies: the names that a request may use, each with its settings as its own schema
describes them, the options of a request, and what the loaded model allows.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from functools import cache

from fastapi import APIRouter
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, JsonSchemaWarningKind
from pydantic_core import PydanticOmit

from dise_app.server.limits import Limits
from dise_app.server.schemas import MAX_ANSWERS, Completion
from dise_core import AsyncLLM
from dise_core.catalog import Catalog, Entry
from dise_core.errors import InputError
from dise_core.interfaces import Scorer, Strategy
from dise_core.params import SamplingParams, ScoringParams
from dise_core.planner import Planner
from dise_core.records import Record

KINDS: Mapping[str, tuple[str, str]] = {
    "scorer": ("scorer", "scorers"),
    "selector": ("selector", "selectors"),
    "unmasking": ("unmasking policy", "unmasking_policies"),
    "length": ("length controller", "length_controllers"),
    "reviser": ("reviser", "revisers"),
}
"""By the option that takes the name: the kind, as `dise plugins` calls it, and the catalog's field.
"""

TYPES = ("integer", "number", "boolean", "string")
"""The types of settings that are told; any other is "json"."""

BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "maxLength", "enum")
"""What is told of a setting's range, in the words of JSON Schema."""


def router(model: Callable[[], AsyncLLM], limits: Limits) -> APIRouter:
    """Return the route. Its answer is made once: nothing in it changes while a model is loaded.

    model: returns the loaded one; called at the first request.
    """
    router = APIRouter()

    @cache
    def answer() -> Record:
        llm = model()
        return {
            "object": "list",
            "data": listed(llm.catalog, llm.planner),
            "options": options(limits),
            "model": facts(llm),
        }

    @router.get("/v1/strategies")
    async def strategies() -> Record:
        return answer()

    return router


def listed(catalog: Catalog, planner: Planner) -> list[Record]:
    """Return every strategy of the catalog, those of plugins included."""
    return [
        _strategy(option, kind, name, entry, planner)
        for option, (kind, field) in KINDS.items()
        for name, entry in getattr(catalog, field).items()
    ]


def _strategy(
    option: str, kind: str, name: str, entry: Entry[Strategy], planner: Planner
) -> Record:
    cls = entry.cls
    settings, problem = _settings_or_problem(cls)
    record: Record = {
        "kind": kind,
        "option": option,
        "name": name,
        "plugin": entry.plugin,
        "is_built_in": entry.is_built_in,
        "about": inspect.getdoc(cls) or "",
        "settings": settings,
        "problem": problem,
    }
    if issubclass(cls, Scorer):
        record["default_selector"] = cls.default_selector
        record["problem"] = problem or _refusal(planner, name, cls)
    return record


def _refusal(planner: Planner, name: str, cls: type[Scorer]) -> str | None:
    """Return why no request to this server may name the scorer; None if it may."""
    try:
        planner.check_scorer(name, cls.model_construct())
    except InputError as error:
        return str(error)
    return None


def _settings_or_problem(cls: type[Strategy]) -> tuple[list[Record], str | None]:
    """Return the settings; none, and what is wrong, for a plugin whose schema cannot be made."""
    try:
        return settings_of(cls), None
    except Exception as error:
        problem = " ".join(f"{type(error).__name__}: {error}".split())
        return [], f"its settings cannot be listed: {problem:.300}"


def settings_of(model: type[BaseModel]) -> list[Record]:
    """Return the fields of a pydantic model, each with its name, type, default, range and
    description.

    type: one of TYPES, or "json" for any other JSON value. nullable: whether null is allowed too. A
    range is told in the words of JSON Schema.
    """
    schema = model.model_json_schema(schema_generator=_Lenient)
    required, parts = schema.get("required", []), schema.get("$defs", {})
    return [
        _setting(name, field, name in required, parts)
        for name, field in schema.get("properties", {}).items()
    ]


def _setting(name: str, schema: Record, is_required: bool, definitions: Record) -> Record:
    """definitions: the schemas that this one refers to, by name."""
    given = schema.get("anyOf", [schema])
    parts = [part for part in given if part.get("type") != "null"]
    part = parts[0] if len(parts) == 1 else {}
    part = definitions.get(part.get("$ref", "").rpartition("/")[2], part)
    kind = part.get("type")
    is_simple = kind in TYPES
    return {
        "name": name,
        "type": kind if is_simple else "json",
        "nullable": len(parts) < len(given),
        "required": is_required,
        "default": _finite(schema.get("default")),
        "description": schema.get("description", ""),
        **(_inclusive(part) if is_simple else {}),
    }


def _inclusive(part: Record) -> Record:
    """Return the bounds of a setting; integers' are inclusive."""
    bounds = {key: part[key] for key in BOUNDS if _finite(part.get(key)) is not None}
    if "const" in part:
        bounds["enum"] = [part["const"]]
    if part["type"] == "integer":
        for exclusive, inclusive, step in (
            ("exclusiveMinimum", "minimum", 1),
            ("exclusiveMaximum", "maximum", -1),
        ):
            if exclusive in bounds:
                bounds[inclusive] = bounds.pop(exclusive) + step
    return bounds


def _finite(value: object) -> object:
    """Return a JSON value with null for each number that JSON cannot express."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
    return value


class _Lenient(GenerateJsonSchema):
    """pydantic's generator, but a field that no JSON value can set is left out, and one that a
    function alone validates may have any.
    """

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """Do nothing: a default that is no JSON value is listed as null."""

    def handle_invalid_for_json_schema(
        self,
        schema: Mapping[str, object],
        error_info: str,  # noqa: ARG002
    ) -> JsonSchemaValue:
        """Return the schema of any value, or leave the field out."""
        if schema["type"] == "function-plain":
            return {}
        raise PydanticOmit


def options(limits: Limits) -> list[Record]:
    """Return the options of a completion: `in` says whether they stand in the request itself or in
    its `dise` object, `scores` whether requests for a score have them too.
    """
    names = {f"{option}_settings" for option in KINDS}
    return [
        setting
        | _allowed(setting, limits)
        | {
            "in": "request" if setting["name"] in Completion.model_fields else "dise",
            "scores": setting["name"] in ScoringParams.model_fields,
        }
        for setting in settings_of(SamplingParams)
        if setting["name"] not in names | {"logprobs"}
    ]


def _allowed(setting: Record, limits: Limits) -> Record:
    """Return the server's own limit where it is below the library's, and its own default."""
    most = {"max_tokens": limits.max_tokens_limit, "n": MAX_ANSWERS, "best_of": MAX_ANSWERS}
    name = setting["name"]
    maximum = {"maximum": min(setting["maximum"], most[name])} if name in most else {}
    return maximum | ({"default": limits.default[name]} if name in limits.default else {})


def facts(llm: AsyncLLM) -> Record:
    """Return what the loaded model, its judge and its calibration decide about requests."""
    info, calibration = llm.predictor.info, llm.planner.calibration
    judge = llm.planner.predictors.get("judge")
    shown = {"scorer", "selector", "scorer_settings", "num_labels", "figures", "threshold"}
    return {
        "name": info.name,
        "max_length": info.max_length,
        "block_length": info.block_length,
        "has_chat_template": llm.predictor.tokenizer.has_chat_template,
        "judge": None if judge is None else judge.info.name,
        "calibration": None
        if calibration is None
        else calibration.model_dump(mode="json", include=shown),
    }
