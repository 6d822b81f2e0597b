"""What users hand over in Python, checked at the door: taken as it is meant, or refused with an
InputError that names the argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import TypeVar

import numpy as np

from dise_core.errors import InputError, shown
from dise_core.params import Params

P = TypeVar("P", bound=Params)


def check_list(given: object, parameter: str, what: str) -> None:
    """Raise InputError unless it is a list, a tuple, an array or another sequence that is neither
    text nor bytes.
    """
    is_list = isinstance(given, Sequence | np.ndarray) and not isinstance(given, str | bytes)
    if not is_list or (isinstance(given, np.ndarray) and given.ndim == 0):
        raise InputError(f"{parameter} must be {what}, not {_told(given)}", parameter)


def is_one(prompts: object) -> bool:
    """Return whether it is one prompt: a text, or a possibly empty list of token ids. Raises
    InputError for what is no prompt and no list of them.
    """
    if isinstance(prompts, str):
        return True
    check_list(prompts, "prompts", "a text, token ids or a list of either")
    return all(isinstance(item, Integral) for item in prompts)  # type: ignore[attr-defined]


def several(prompts: object, parameter: str) -> list[object]:
    """Return a list of prompts; a text or a flat list of token ids is one. Raises InputError for
    none.
    """
    if isinstance(prompts, str):
        return [prompts]
    check_list(prompts, f"{parameter}s", "a text, token ids or a list of either")
    if len(prompts) == 0:  # type: ignore[arg-type]
        raise InputError(f"no {parameter} given", f"{parameter}s")
    return [prompts] if is_one(prompts) else list(prompts)  # type: ignore[call-overload]


def params_of(given: object, kind: type[P]) -> P:
    """Return the params, the defaults for None. Raises InputError for anything else."""
    if given is None:
        return kind()
    if not isinstance(given, kind):
        raise InputError(f"params must be {kind.__name__}, not {_told(given)}", "params")
    return given


def check_messages(messages: object) -> None:
    """Raise InputError unless it is a conversation: messages with a "role" and a "content"."""
    check_list(messages, "messages", 'a list of {"role": ..., "content": ...}')
    if len(messages) == 0:  # type: ignore[arg-type]
        raise InputError("the conversation is empty: it needs at least one message", "messages")
    for message in messages:  # type: ignore[attr-defined]
        if not isinstance(message, Mapping) or not all(
            isinstance(message.get(key), str) for key in ("role", "content")
        ):
            raise InputError(
                f'a message needs "role" and "content", both text: {shown(message)}', "messages"
            )


def check_choice(given: object, parameter: str) -> None:
    """Raise InputError unless it is True, False or None."""
    if not isinstance(given, bool | None):
        raise InputError(f"{parameter} must be True, False or None, not {_told(given)}", parameter)


def _told(given: object) -> str:
    return f"{type(given).__name__}: {shown(given, 40)}"
