"""Fields that take a strategy: its name or, in Python, an object."""

from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

from pydantic import BaseModel, ValidatorFunctionWrapHandler, WrapSerializer, WrapValidator

from dise_core.errors import InputError
from dise_core.params.base import Name, Params

P = TypeVar("P", bound=Params)


def _checked(value: Any, handler: ValidatorFunctionWrapHandler, method: str, kind: str) -> Any:
    if isinstance(value, BaseModel) and hasattr(value, method):
        return value
    if isinstance(value, BaseModel | type):
        raise ValueError(f"give the name of a {kind}, or an object, such as Mine(k=3)")
    return handler(value)


def _as_json(value: Any, handler: Any) -> Any:
    """Return a name, or an object's class and its settings."""
    if not isinstance(value, BaseModel):
        return handler(value)
    place = f"{type(value).__module__}:{type(value).__qualname__}"
    return {"class": place, "settings": value.model_dump(mode="json")}


def _field(method: str, kind: str) -> Any:
    """Return the type of a field for strategies that have this method."""
    check = WrapValidator(lambda value, handler: _checked(value, handler, method, kind))
    return Annotated[Name, check, WrapSerializer(_as_json)]


if TYPE_CHECKING:

    class _Scorer(Protocol):
        def score(self, sequence: Any, selector: Any) -> Any: ...

    class _Selector(Protocol):
        def select(self, sequence: Any) -> Any: ...

    class _Policy(Protocol):
        def choose(self, step: Any) -> Any: ...

    class _Controller(Protocol):
        def generate(self, prompt: Any, denoiser: Any, scorer: Any) -> Any: ...

    class _Reviser(Protocol):
        def revise(self, generation: Any, denoiser: Any, scorer: Any) -> Any: ...

    ScorerLike = str | _Scorer
    SelectorLike = str | _Selector
    UnmaskingLike = str | _Policy
    LengthLike = str | _Controller
    ReviserLike = str | _Reviser
else:
    ScorerLike = _field("score", "scorer")
    SelectorLike = _field("select", "selector")
    UnmaskingLike = _field("choose", "unmasking policy")
    LengthLike = _field("generate", "length controller")
    ReviserLike = _field("revise", "reviser")


def name_of(strategy: object) -> str:
    """Return a name, or what an object is called: its class with its settings."""
    return strategy if isinstance(strategy, str) else repr(strategy)


def with_names(params: P) -> P:
    """Return the params. Raises InputError for an object: what is kept has names."""
    for name, value in params:
        if isinstance(value, BaseModel):
            raise InputError(
                f"{name}={value!r:.80} is an object, and what is kept, or sent, says "
                "strategies by name: give LLM(plugins=[CLASS]) its class, and here a name",
                name,
            )
    return params
