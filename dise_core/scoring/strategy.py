"""The base of all strategies that plugins may add."""

from abc import ABC
from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Strategy(BaseModel, ABC):
    """Base of all strategies: frozen, its fields are its settings, unknown settings are
    refused.

    The text below a field is its description where settings are listed.
    """

    suits: ClassVar[str] = ""
    """For what it is recommended, and the figure that is the reason, as `dise plugins`
    shows it. Where some of a plugin's strategies of a kind say so, its others are listed
    as for research."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        coerce_numbers_to_str=True,  # as a setting of the command, NAME=3, is a number
    )

    _origin: ClassVar[tuple[str, str] | None] = None
    """What errors call a third party's that a catalog made, and its plugin: set on the
    object. A private attribute of pydantic's would cost all others, too."""
