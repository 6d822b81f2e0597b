"""Params and the types of their fields; what pydantic reports, as one line."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    ModelWrapValidatorHandler,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError, PydanticKnownError

from dise_core.errors import InputError, did_you_mean
from dise_core.records import Record
from dise_core.struck import struck

MAX_LENGTH = 2**20
"""Tokens of a text, a block or a step: more than any model reads."""

MAX_STEPS = 2**16
"""Denoising steps of a response. Those beyond its tokens are skipped, or commit at random."""

MAX_NAME = 1000
"""Characters of a name, and of a union of selectors."""

MAX_FIELDS, MAX_BIASES = 256, 1024
"""Fields of an object, and tokens of a logit_bias."""

Name = Annotated[str, StringConstraints(max_length=MAX_NAME)]

Salt = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME)]

Length = Annotated[int, Field(ge=1, le=MAX_LENGTH)]

TokenId = Annotated[int, Field(ge=0, lt=2**31)]


Bias = Annotated[float, Field(ge=-100, le=100)]
"""What is added to a token's logit; either end is as good as writing it always, or never."""

if TYPE_CHECKING:  # what may be given: kept as tuples, and by whole numbers
    TokenIds = Sequence[int]
    Stops = Sequence[str]
    LogitBias = Mapping[int, float] | Mapping[str, float]
else:
    TokenIds = Annotated[tuple[TokenId, ...], FailFast()]
    LogitBias = Annotated[
        dict[TokenId, Bias],
        Field(max_length=MAX_BIASES),
        BeforeValidator(lambda biases: not_larger(biases, MAX_BIASES)),
    ]
    Stops = tuple[Annotated[str, StringConstraints(max_length=1000)], ...]


Settings = Annotated[Record, Field(max_length=MAX_FIELDS)]
"""Settings of a strategy, by the names of its fields."""

AS_JSON = {"tuple_type": "[1, 2]", "list_type": "[1, 2]", "dict_type": '{"name": 1}'}
"""How values of these types are written where they are texts, by pydantic's errors."""

UNKNOWN = "unknown_name"
"""The type of pydantic's problem with a name that no field has."""


def not_larger(fields: Any, max_fields: int) -> Any:
    """Return the value unchanged. Raises one error for an object with too many fields,
    rather than one for each field.
    """
    if isinstance(fields, dict) and (count := len(fields)) > max_fields:
        facts = {"field_type": "Dictionary", "max_length": max_fields, "actual_length": count}
        raise PydanticKnownError("too_long", facts)
    return fields


class Suggesting(BaseModel):
    """Suggests the nearest field for an unknown name, if that is the first problem."""

    @model_validator(mode="wrap")
    @classmethod
    def _suggest(cls, fields: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(not_larger(fields, MAX_FIELDS))
        except ValidationError as error:
            problems = error.errors(include_url=False)
            problem = next((entry for entry in problems if entry["type"] != "missing"), problems[0])
            kind, value = str((*problem["loc"], "")[0]), problem["input"]
            if problem["type"] == "literal_error" and (sentence := struck(kind, f"{value}")):
                facts = {"name": kind, "sentence": sentence}
                raise PydanticCustomError(UNKNOWN, "{sentence}", facts) from error
            if problem["type"] != "extra_forbidden" or len(problem["loc"]) > 1:
                raise
            name = str(problem["loc"][0])
            name_text, hint = f"{name:.80}", did_you_mean(name, _names(cls))
            sentence = struck("option", name) or f"there is no setting {name_text!r}{hint}"
            facts = {"name": name_text, "sentence": sentence}
            raise PydanticCustomError(UNKNOWN, "{sentence}", facts) from error


def _names(cls: type[BaseModel]) -> list[str]:
    aliases = (field.validation_alias for field in cls.model_fields.values())
    choices = (alias.choices for alias in aliases if isinstance(alias, AliasChoices))
    return sorted({*cls.model_fields, *(str(name) for group in choices for name in group)})


class Params(Suggesting):
    """Frozen; unknown keys are refused. `input_error` turns pydantic's report into one
    line.

    The text below a field is its description at every door: the command's help, the
    server's schema.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_by_name=True,
        validate_by_alias=True,
        use_attribute_docstrings=True,
    )

    if not TYPE_CHECKING:

        def __init__(self, **fields: object) -> None:
            """Raises InputError for the first field that is not allowed."""
            try:
                super().__init__(**fields)
            except ValidationError as error:
                raise input_error(error) from None

        # For pydantic this is its own constructor: params inside other models keep its
        # own errors.
        __init__.__pydantic_base_init__ = True


def place_of(problem: Mapping[str, Any]) -> tuple[str | int, ...]:
    """Return the place of one of pydantic's problems, with our own name for it, and
    without what pydantic calls a key, or a type of several, such as dict[str,int].
    """
    place = tuple(part for part in problem["loc"] if "[" not in str(part))
    name = problem.get("ctx", {}).get("name")
    return place if name is None else (*place, name)


def input_error(
    error: ValidationError, subject: str | None = None, names: Collection[str] = ()
) -> InputError:
    """Return an InputError for a pydantic error's first problem; its one-line message
    names the parameter, the value and what is allowed. names: of the settings that there
    are.
    """
    problem = error.errors(include_url=False)[0]
    parameter = ".".join(str(part) for part in place_of(problem)) or None
    message = problem["msg"].removeprefix("Value error, ")
    origin = f"{subject}: " if subject else ""
    if problem["type"] == UNKNOWN:
        return InputError(f"{origin}{message}", parameter)
    if problem["type"] == "extra_forbidden":
        hint = did_you_mean(parameter or "", names)
        listed = f"{hint or '.'} Known: {', '.join(sorted(names)) or 'none'}" if subject else ""
        return InputError(f"{origin}there is no setting {parameter!r}{listed}", parameter)
    if problem["type"] == "missing":
        return InputError(f"{origin}{parameter!r} is missing", parameter)
    value = f"{parameter}={problem['input']!r:.80}: " if parameter else ""
    if problem["type"] in AS_JSON:
        message += f", written as JSON, such as {AS_JSON[problem['type']]}"
    return InputError(f"{origin}{value}{message}", parameter)
