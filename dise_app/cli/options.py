"""The options that several verbs share."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer


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
LogProbs = Annotated[int, typer.Option(help="Likeliest tokens to report per position.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, and nothing else there.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
MaxNumSeqs = Annotated[int, typer.Option(help="The most sequences in one forward pass.")]
MaxBatchTokens = Annotated[int, typer.Option(help="The most tokens in one forward pass.")]
Device = Annotated[str, typer.Option(help="A torch device; auto takes a GPU if there is one.")]
WeightType = Annotated[DType, typer.Option("--dtype", help="Type of the weights.")]


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
