"""What the bodies of all requests have in common."""

from typing import Annotated, TypeVar

from pydantic import ConfigDict, Discriminator, FailFast, StringConstraints, Tag, model_validator

from dise_app.server.schemas.neutral import without_neutral
from dise_core.params.base import Suggesting


class _FailFast(FailFast):
    """pydantic's FailFast with the hash that unions need."""

    __hash__ = object.__hash__


FailFastList = _FailFast()
"""Stops at a list's first wrong item."""

Item = TypeVar("Item")
FastList = Annotated[list[Item], FailFastList]
TokenIds = FastList[int]
Strings = FastList[str]

ID_PATTERN = r"[A-Za-z0-9._-]{1,64}"
"""What a request may be called, by its header X-Request-ID or its `rid`."""

RequestId = Annotated[str, StringConstraints(pattern=f"^{ID_PATTERN}$")]

TextOrIds = str | TokenIds
PlainText = Annotated[str, Tag("is-text")]

TEXT_OR_LIST = Discriminator(lambda value: "is-list" if isinstance(value, list) else "is-text")
"""Tells a text from a list, so that a wrong item is the problem, and not the list."""

TextOrListOf = Annotated[PlainText | Annotated[FastList[Item], Tag("is-list")], TEXT_OR_LIST]


class Body(Suggesting):
    """A request, or a part of one, of which every field is known."""

    model_config = ConfigDict(extra="forbid")


class OpenBody(Body):
    """A request in OpenAI's format, without the fields that ask for nothing."""

    @model_validator(mode="before")
    @classmethod
    def _without_neutral(cls, body: object) -> object:
        return without_neutral(body, frozenset(cls.model_fields))
