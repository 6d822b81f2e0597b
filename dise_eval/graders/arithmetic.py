"""Evaluates arithmetic in untrusted text by its syntax tree, within bounds."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from fractions import Fraction

MAX_LENGTH = 1000

MAX_BITS = 4096

_OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class ExpressionError(ValueError):
    """The text is not an expression that can be evaluated here; the message says why."""


def value_of(text: str, python: bool = False) -> Fraction:
    """Return the exact value of an expression of numbers, + - * / and brackets.

    python: also allow ** and //, as Python's own eval does. Raises ExpressionError for
    anything else, for a division by zero, and for a number of more than MAX_BITS bits.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(
            f"an expression of {len(text)} characters is longer than {MAX_LENGTH}"
        )
    try:
        return _value(ast.parse(text.strip(), mode="eval").body, python)
    except ZeroDivisionError:
        raise ExpressionError("a division by zero") from None
    except ExpressionError:
        raise
    except (SyntaxError, RecursionError, MemoryError, ValueError):
        raise ExpressionError(f"no expression: {text[:80]!r}") from None


def _value(node: ast.expr, python: bool) -> Fraction:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return _bounded(Fraction(str(number)))
        case ast.UnaryOp(ast.USub(), operand):
            return -_value(operand, python)
        case ast.UnaryOp(ast.UAdd(), operand):
            return _value(operand, python)
        case ast.BinOp(left, ast.Pow(), right) if python:
            return _power(_value(left, python), _value(right, python))
        case ast.BinOp(left, ast.FloorDiv(), right) if python:
            return Fraction(_value(left, python) // _value(right, python))
        case ast.BinOp(left, kind, right) if type(kind) in _OPERATORS:
            return _bounded(_OPERATORS[type(kind)](_value(left, python), _value(right, python)))
    raise ExpressionError(f"not allowed in an expression: {ast.unparse(node)[:80]!r}")


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if exponent.denominator != 1 or abs(exponent) > MAX_BITS or bits * abs(exponent) > MAX_BITS:
        raise ExpressionError(f"a power that is too large: {base} ** {exponent}"[:120])
    return base ** int(exponent)


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise ExpressionError("a number that is too large")
    return value
