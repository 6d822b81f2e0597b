"""Answers that match a regular expression."""

from pydantic import Field

from dise_core import Constraint


class Regex(Constraint):
    """Answers are whole matches of a regular expression."""

    regex: str = Field(max_length=2**16)
    """In the syntax of Rust's regex crate: no look-around, no back-reference."""

    def expression(self) -> str:
        return self.regex
