"""The options that several verbs share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

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
    str,
    typer.Option("--selector", help="Over which positions, for example response, last-10, prompt-last-2+first-5."),
]
BlockLength = Annotated[int, typer.Option(help="Tokens in a block of the response.")]
LogProbs = Annotated[int, typer.Option(help="Likeliest tokens to report per position.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, and nothing else there.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
MaxNumSeqs = Annotated[int, typer.Option(help="The most sequences in one forward pass.")]
MaxBatchTokens = Annotated[int, typer.Option(help="The most tokens in one forward pass.")]
Device = Annotated[str, typer.Option(help="A torch device; auto takes a GPU if there is one.")]
WeightType = Annotated[DType, typer.Option("--dtype", help="Type of the weights.")]
