"""What users hand over in Python: taken as it is meant, or refused by an InputError."""

import json
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import TypeVar, cast

import numpy as np

from dise_core.errors import InputError, shown
from dise_core.params.base import Params
from dise_core.records import Record

P = TypeVar("P", bound=Params)
PromptInput = str | Sequence[int] | Sequence[str | Sequence[int]]
"""A text or token ids, or several of either; one prompt, or several."""

MAX_TEMPLATE_KWARGS = 4096
"""Characters of a chat template's variables, as JSON."""

MAX_DIGITS = 6
"""Digits of their whole numbers, over which a template may loop."""


def check_list(value: object, parameter: str, description: str) -> Sequence[object]:
    """Return an array or a sequence. Raises InputError for text, bytes and others."""
    is_list = isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)
    if not is_list or (isinstance(value, np.ndarray) and value.ndim == 0):
        raise InputError(f"{parameter} must be {description}, not {_describe(value)}", parameter)
    return cast("Sequence[object]", value)


def is_one(prompts: Sequence[object], parameter: str = "prompts") -> bool:
    """Return whether it is one prompt. Raises InputError for neither one nor several."""
    if isinstance(prompts, str):
        return True
    check_list(prompts, parameter, "a text, token ids or a list of either")
    return all(isinstance(item, Integral) for item in prompts)


def several(prompts: PromptInput, parameter: str) -> list[str | Sequence[int]]:
    """Return a list of prompts; a flat list of ids is one. Raises InputError for none."""
    plural = parameter + ("es" if parameter.endswith("x") else "s")
    is_single = is_one(prompts, plural)
    if len(prompts) == 0 and not isinstance(prompts, str):
        raise InputError(f"no {parameter} given", plural)
    return list(cast("Sequence[str | Sequence[int]]", [prompts] if is_single else prompts))


def params_of(params: object, cls: type[P]) -> P:
    """Return the params, the defaults for None. Raises InputError for anything else."""
    if params is None:
        return cls()
    if not isinstance(params, cls):
        raise InputError(f"params must be {cls.__name__}, not {_describe(params)}", "params")
    return params


def check_messages(conversation: object) -> None:
    """Raise InputError unless it is a list of messages with "role" and "content"."""
    messages = check_list(conversation, "messages", 'a list of {"role": ..., "content": ...}')
    if len(messages) == 0:
        raise InputError("the conversation is empty: it needs at least one message", "messages")
    for message in messages:
        if not isinstance(message, Mapping) or not all(
            isinstance(message.get(key), str) for key in ("role", "content")
        ):
            raise InputError(
                'a message needs "role" and "content", both text, as DiSE reads text alone: '
                f"{shown(message)}",
                "messages",
            )


def variables_of(value: object) -> Record:
    """Return a copy of a chat template's variables, which are JSON of bounded size."""
    name = "chat_template_kwargs"
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InputError(
            f"chat_template_kwargs must be a JSON object, not {_describe(value)}", name
        )
    try:
        text = json.dumps(dict(value), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            "chat_template_kwargs must be what JSON can express, which excludes other "
            f"objects and numbers that are not finite: {error}",
            name,
        ) from error
    if len(text) > MAX_TEMPLATE_KWARGS:
        raise InputError(
            f"chat_template_kwargs have {len(text)} characters as JSON, more than the "
            f"{MAX_TEMPLATE_KWARGS} that they may have; give less",
            name,
        )
    return dict(json.loads(text, parse_int=_short_int, parse_float=_small_float))


def _short_int(digits: str) -> int:
    if len(digits.lstrip("-")) > MAX_DIGITS:
        raise InputError(
            f"{digits:.40} in chat_template_kwargs has more than {MAX_DIGITS} digits; "
            "give a smaller number, or a text",
            "chat_template_kwargs",
        )
    return int(digits)


def _small_float(text: str) -> float:
    number = float(text)
    _short_int(str(int(number)))
    return number


def check_choice(value: object, parameter: str) -> None:
    """Raise InputError unless it is True, False or None."""
    if not isinstance(value, bool | None):
        raise InputError(
            f"{parameter} must be True, False or None, not {_describe(value)}", parameter
        )


def _describe(value: object) -> str:
    return f"{type(value).__name__}: {shown(value, 40)}"
