"""Constraints say which answers may be written."""

from abc import abstractmethod
from typing import ClassVar

from dise_core.errors import shown
from dise_core.scoring.strategy import Strategy


class Constraint(Strategy):
    """Says which answers may be written. is_json: whether each is JSON, so that its
    fields are scored. in_child: whether a worker process makes the expression, as it may
    take long. The worker gets the settings as JSON, and imports the class by its module
    and name.
    """

    is_json: ClassVar[bool] = False
    in_child: ClassVar[bool] = False

    @abstractmethod
    def expression(self) -> str:
        """Return the regular expression of the answers, each a whole match, in the syntax
        of Rust's regex crate. Raises InputError for settings that it cannot guarantee.
        """

    def _short_expression(self) -> str | None:
        """Return the expression of one in_child if milliseconds make it, else None."""
        return None


def expression_of(constraint: Constraint) -> str:
    """Return a constraint's expression. Raises what it raises, and TypeError for no text."""
    expression: object = constraint.expression()
    if not isinstance(expression, str):
        raise TypeError(
            "expression() must return a text, a regular expression such as '[a-z]+', not "
            f"{type(expression).__name__}: {shown(expression)}"
        )
    return expression
