"""dise fill: write what stands in the gaps of a text."""

import json
import sys
from dataclasses import replace
from typing import Annotated

import numpy as np
import typer

from dise_app.cli import options
from dise_app.cli.answer import (
    answer,
    load_for,
    opened,
    refuse_both_or_neither,
    refuse_judge,
    text_or_ids,
)
from dise_app.files.runner import AnswerPlan
from dise_app.terminal.piped import given_texts, piped_texts
from dise_core import LLM, InputError, RequestOutput, SamplingParams
from dise_core.front.planner import Planner
from dise_core.models.tokenizer import Tokenizer
from dise_core.records import JsonFields

SHARED = options.Own(
    **{name: options.SHARED.options[name] for name in ("as_json", "explain")},
    gap=options.option(str, "What marks a gap in TEXT.", "{}"),
)


@options.verb(
    "model", "max_tokens", "length", "temperature", "n", "seed", "scorer", "as_json",
    shared=SHARED, **options.WRITTEN,
)  # fmt: skip
def fill(
    text: Annotated[
        str | None,
        typer.Argument(
            help="A text with gaps; - is standard input. Or give --input, or pipe one in.",
            metavar="TEXT",
        ),
    ] = None,
    *,
    parts: options.Parts,
) -> None:
    """Fill the gaps of a text, each marked by {}, with how sure the model is of what it
    wrote.

    --max-tokens is the length of a gap, or with --length cal the longest that is tried. A
    space before a gap belongs to the gap, as tokens begin with it, unless --regex,
    --schema or --choice say what the gap holds. Several gaps are filled from left to
    right: each sees all before it, filled, and what follows up to the next gap. Lines of
    --input hold "prefix" and "suffix" of one gap (or "prefix_ids", "suffix_ids").
    """
    if text is None and parts.files["input"] is None:
        text = next(iter(piped_texts()), None)
    refuse_both_or_neither(text is not None, parts, "TEXT")
    params = options.sampling_params(parts)
    space = " " if params.constraint is None else ""
    pieces = [] if text is None else _pieces(given_texts([text])[0], parts.shared["gap"], space)

    def plan_of(planner: Planner, request: JsonFields, params: SamplingParams) -> AnswerPlan:
        prefix, suffix = text_or_ids(request, "prefix", ""), text_or_ids(request, "suffix")
        return planner.fill(prefix, suffix, params)

    if pieces:
        refuse_judge(parts, params)
        llm = opened(parts.models, parts.engine)
        planner = replace(llm.planner, explains=parts.shared["explain"])
        load_for(llm, [planner.fill(pieces[0], pieces[1], params)])
        _show(llm, planner, pieces, params, parts.shared["as_json"])
    else:
        answer(parts, params, plan_of)


def _pieces(text: str, mark: str, space: str) -> list[str]:
    pieces = text.split(mark) if mark else []
    if len(pieces) < 2:
        raise InputError(f"the text has no gap: mark one by {mark or '{}'}, or another --gap")
    pieces = [*(piece.removesuffix(space) for piece in pieces[:-1]), pieces[-1]]
    if "" in pieces[1:]:
        raise InputError("a gap needs a text behind it, up to the next gap or the end")
    return pieces


def _show(
    llm: LLM, planner: Planner, pieces: list[str], params: SamplingParams, as_json: bool
) -> None:
    from rich.console import Console

    from dise_app.terminal import live, render

    console, answers, texts = Console(highlight=False), list[RequestOutput](), pieces[:1]
    for suffix in pieces[1:]:
        plan = planner.fill("".join(texts), suffix, params)
        if sys.stdout.isatty() and not as_json:
            answers.append(live.answered(console, llm, plan))
        else:
            answers += (outcome.unwrap() for outcome in llm.run([plan]))
        texts += _added(answers[-1], llm.predictor.tokenizer), suffix
    if as_json:
        gaps = [answer.to_dict() for answer in answers]
        print(json.dumps({"text": "".join(texts), "gaps": gaps}, ensure_ascii=False))
    else:
        render.show_gaps(console, texts, answers)


def _added(answer: RequestOutput, tokenizer: Tokenizer) -> str:
    """Return what the best answer adds to the text before its gap. Where WordPiece's tokens begin
    words it is a space more than the answer, where they go on with one, two signs less.
    """
    prompt, output = answer.prompt_token_ids, answer.outputs[0]
    before, whole = (
        tokenizer.decode(np.array(ids, np.int64)) for ids in (prompt, (*prompt, *output.token_ids))
    )
    added = whole.removeprefix(before)
    # Some decoders tidy up what stands before, and a stop text ends the answer's alone.
    is_whole = whole.startswith(before) and output.finish_reason != "stop"
    return added if is_whole else output.text
