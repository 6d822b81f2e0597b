"""The options that several verbs share."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer


class EngineName(StrEnum):
    """What runs the forward passes."""

    transformers = "transformers"
    vllm = "vllm"


class CacheName(StrEnum):
    """What is kept within a block, as Fast-dLLM names it."""

    none = "none"
    prefix = "prefix"
    dual = "dual"


class DType(StrEnum):
    """Types of the weights."""

    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


Model = Annotated[str, typer.Option(help="A model's name, a local folder or a hub id.")]
Input = Annotated[Path | None, typer.Option(help="JSON lines to read; - is standard input.")]
Output = Annotated[Path | None, typer.Option(help="JSON lines to write, in the order of the input; - is standard output.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on after the last line that OUTPUT already holds.")]
Chat = Annotated[
    bool | None,
    typer.Option("--chat/--no-chat", help="Put text prompts into the model's chat template, or leave them."),
]
ScorerName = Annotated[str, typer.Option("--scorer", help="How an answer is scored; see `dise plugins`.")]
SelectorName = Annotated[
    str | None,
    typer.Option(
        "--selector",
        help="Over which positions, for example response, last-10, prompt-last-2+first-5. [default: the scorer's own]",
        show_default=False,
    ),
]
ScorerSettings = Annotated[
    list[str] | None,
    typer.Option("--scorer-setting", help="A setting of the scorer, KEY=VALUE; may be repeated.", metavar="KEY=VALUE"),
]
Samples = Annotated[int | None, typer.Option(help="Monte Carlo samples: --scorer-setting num_samples=SAMPLES.")]
Judge = Annotated[
    str | None, typer.Option(help="An auto-regressive model for the scorers that ask one: folder, hub id or GGUF file.")
]
BlockLength = Annotated[int, typer.Option(help="Tokens in a block of the response.")]


def _number_or_none(given: str | int) -> int | None:
    try:
        return None if given == "none" else int(given)
    except ValueError:
        raise typer.BadParameter(f"{given!r} is neither a number nor none") from None


LogProbs = Annotated[
    int | None,
    typer.Option(
        help="Likeliest tokens to report per position, beside its own; none reports neither, which is faster.",
        parser=_number_or_none,
        metavar="INTEGER|none",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, and nothing else there.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
Engine = dict[str, Any]
"""The engine's options, as keyword arguments of LLM."""

Table = dict[str, tuple[Any, Any]]
"""Options by name: their types and defaults."""

ENGINE_OPTIONS: Table = {
    "engine": (Annotated[EngineName, typer.Option(help="What runs the model.")], EngineName.transformers),
    "tensor_parallel_size": (Annotated[int, typer.Option(help="Devices over which vLLM spreads the model.")], 1),
    "max_num_seqs": (Annotated[int, typer.Option(help="The most sequences in one forward pass.")], 64),
    "max_batch_tokens": (Annotated[int, typer.Option(help="The most tokens in one forward pass.")], 16384),
    "max_cache_tokens": (Annotated[int, typer.Option(help="Tokens whose keys and values a --cache may keep.")], 16384),
    "device": (Annotated[str, typer.Option(help="A torch device; auto takes a GPU if there is one.")], "auto"),
    "dtype": (Annotated[DType, typer.Option("--dtype", help="Type of the weights.")], DType.auto),
    "revision": (Annotated[str | None, typer.Option(help="Branch, tag or commit of a model on the hub.")], None),
    "adapter": (
        Annotated[str | None, typer.Option(help="Load the model with this adapter, whichever claim it; see `dise models`.")],
        None,
    ),
}
"""Options that every verb with a model has."""


def with_options(**tables: Table) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a verb the tables' options after its own; it gets each table's as one argument."""
    shared = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=kind)
        for table in tables.values()
        for name, (kind, default) in table.items()
    ]

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        own = [p for p in inspect.signature(verb, eval_str=True).parameters.values() if p.name not in tables]

        @functools.wraps(verb)
        def command(**given: Any) -> None:
            plain = {name: v.value if isinstance(v, StrEnum) else v for name, v in given.items()}
            parts = {part: {name: plain[name] for name in table} for part, table in tables.items()}
            verb(**{p.name: given[p.name] for p in own}, **parts)

        command.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in (*own, *shared)}
        return command

    return decorate


with_engine = with_options(engine=ENGINE_OPTIONS)
"""Gives a verb the options that every verb with a model has, as its argument `engine`."""


def settings(pairs: list[str] | None, samples: int | None = None) -> dict[str, Any]:
    """Return the settings of KEY=VALUE pairs, values read as JSON where they are JSON. Raises InputError for other texts."""
    from dise_core.errors import InputError

    found: dict[str, Any] = {} if samples is None else {"num_samples": samples}
    for pair in pairs or []:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise InputError(f"a setting is written KEY=VALUE, not {pair!r}")
        if key in found:
            raise InputError(f"setting {key!r} is given twice")
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    return found
