"""What clients of SGLang get: scores in `meta_info`, and in OpenAI's format."""

from functools import cache
from typing import Any

from pydantic import BaseModel, create_model

from dise_sglang.requests import ANSWER


def unpack(
    manager: Any, meta_info: Any, state: Any, info: dict[str, Any], index: int, reason: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Put what is told of a finished answer into its `meta_info`, as `dise`."""
    told = [value for value in info.get(ANSWER, {index: ()})[index] if value]
    if told:
        meta_info["dise"] = told[-1]
    others = {key: values for key, values in info.items() if key != ANSWER}
    return (manager, meta_info, state, others, index, reason), {}


def tell(response: Any, _serving: Any, _request: Any, ret: Any, _created: Any) -> Any:
    """Return an answer in OpenAI's format with `dise`, a value for each choice."""
    told = [item["meta_info"].get("dise") for item in ret]
    if not any(told) or not isinstance(response, BaseModel):
        return None
    fields = {name: getattr(response, name) for name in type(response).model_fields}
    return _telling(type(response)).model_construct(**fields, dise=told)


@cache
def _telling(kind: Any) -> type[BaseModel]:
    """Return the kind of answer with the member; a subclass, for callers that read it."""
    told: Any = (list[dict[str, Any] | None], ...)
    return create_model(kind.__name__, __base__=kind, dise=told)
