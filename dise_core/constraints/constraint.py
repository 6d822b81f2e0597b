"""Constraints say which answers may be written."""

from abc import abstractmethod
from typing import ClassVar

from dise_core.scoring.strategy import Strategy


class Constraint(Strategy):
    """Says which answers may be written. is_json: whether each is JSON, so that its
    fields are scored. in_child: whether a child process makes the expression, as it may
    take long. The child gets the settings as JSON, and imports the class by its module
    and name.
    """

    is_json: ClassVar[bool] = False
    in_child: ClassVar[bool] = False

    @abstractmethod
    def expression(self) -> str:
        """Return the regular expression of the answers, each a whole match, in the syntax
        of Rust's regex crate. Raises InputError for settings that it cannot guarantee.
        """
