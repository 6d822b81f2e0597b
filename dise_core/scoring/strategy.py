"""The base of all strategies that plugins may add."""

from abc import ABC

from pydantic import BaseModel, ConfigDict


class Strategy(BaseModel, ABC):
    """Base of all strategies: frozen, its fields are its settings, unknown settings are refused.

    The text below a field is its description where settings are listed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
