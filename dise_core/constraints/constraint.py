"""Constraints say which answers may be written."""

from abc import abstractmethod
from typing import ClassVar

from dise_core.scoring.strategy import Strategy


class Constraint(Strategy):
    """Says which answers may be written. is_json: whether each is JSON, whose fields are told."""

    is_json: ClassVar[bool] = False

    @abstractmethod
    def expression(self) -> str:
        """Return the regular expression of the answers, each a whole match, in the syntax of Rust's
        regex crate. Raises InputError for settings that it cannot guarantee.
        """
