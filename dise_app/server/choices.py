"""Responses to clients: the library's answers in OpenAI's format, with `dise` objects."""

import math
from collections.abc import Sequence
from itertools import accumulate

from dise_core import CanvasUpdate, CompletionOutput, RequestOutput, Token
from dise_core.models.pieces import BROKEN
from dise_core.records import json_number

JsonObject = dict[str, object]

CONFIDENCE_HEADERS = ("X-DiSE-Score", "X-DiSE-Probability")
"""Headers of an answer in one piece, for clients that drop the `dise` object."""


def text_tokens(output: CompletionOutput) -> list[Token]:
    """Return the tokens of the text: all but end tokens."""
    return [token for token in output.tokens if not token.is_end]


def confidence(output: CompletionOutput, seed: int | None) -> JsonObject:
    """Return a choice's `dise` object. seed: that which reproduces the answer."""
    record = output.to_dict() | {"seed": seed, "sample": output.index}
    about_score = ("score", "written", "probability", "abstained", "uncalibrated")
    keys = (*about_score, "fields", "tokens", "length", "revisions", "seed", "sample")
    return {key: record[key] for key in keys if key in record}


def step_map(output: CompletionOutput, start: int) -> JsonObject:
    """Return SGLang's `meta_info` of how an answer was written, a number for each of its
    token ids: the step, from 1 (0 for none), and the log-probability that it had then.
    start: tokens of the prompt.
    """
    if output.writing is None:
        return {}
    response = slice(start, start + len(output.token_ids))
    return {
        "output_ids": list(output.token_ids),
        "step_maps": (output.writing.steps[response] + 1).tolist(),
        "written": [json_number(p) for p in output.writing.logprobs[response].tolist()],
    }


def confidence_headers(output: CompletionOutput) -> dict[str, str]:
    """Return the numbers of a choice's `dise` object that are known, as headers."""
    numbers = zip(CONFIDENCE_HEADERS, (output.score.value, output.probability), strict=True)
    return {
        name: repr(float(number))
        for name, number in numbers
        if number is not None and math.isfinite(number)
    }


def usage(answers: Sequence[RequestOutput], num_read: int | None = None) -> JsonObject:
    """Return OpenAI's token counts. num_read: tokens read, if not the prompts' alone."""
    if num_read is None:
        num_read = sum(answer.usage.prompt_tokens for answer in answers)
    num_written = sum(answer.usage.completion_tokens for answer in answers)
    return {
        "prompt_tokens": num_read,
        "prompt_tokens_details": {"cached_tokens": sum(a.usage.cached_tokens for a in answers)},
        "completion_tokens": num_written,
        "total_tokens": num_read + num_written,
    }


def cost(answers: Sequence[RequestOutput]) -> JsonObject:
    """Return an answer's NFE and seconds, and what a cache made of them."""
    seconds = round(max(answer.usage.seconds for answer in answers), 4)
    record: JsonObject = {"nfe": sum(answer.usage.nfe for answer in answers), "seconds": seconds}
    if (cache := answers[0].cache) != "none":
        record |= {
            "cache": cache,
            "is_approximate": any(answer.is_approximate for answer in answers),
            "nfe_computed": round(sum(answer.usage.nfe_computed for answer in answers), 2),
        }
    return record


def canvas(update: CanvasUpdate) -> JsonObject:
    """Return one canvas update as JSON for a chunk's `dise` object."""
    scored = [{"position": place, "logprob": _finite(p)} for place, p in update.scored]
    return {
        "index": update.index,
        "num_tokens": update.num_tokens,
        "is_fresh": update.is_fresh,
        "committed": [
            token._asdict() | ({} if logprob is None else {"logprob": _finite(logprob)})
            for token, logprob in zip(update.committed, update.logprobs, strict=True)
        ],
        "text": update.text,
        **({"scored": scored} if scored else {}),
    }


def text_logprobs(tokens: Sequence[Token]) -> JsonObject:
    """Return log-probabilities in the format of OpenAI's completions."""
    *offsets, _ = accumulate((len(token.text) for token in tokens), initial=0)
    # As they stand among the likeliest: clients compare both.
    logprobs = (dict(token.top_logprobs).get(token.id, token.logprob) for token in tokens)
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [_finite(logprob) for logprob in logprobs],
        "top_logprobs": [{text: _finite(p) for text, p in _named(token)} for token in tokens],
        "text_offset": offsets,
    }


def chat_logprobs(tokens: Sequence[Token]) -> JsonObject:
    """Return log-probabilities in the format of OpenAI's chat."""
    return {
        "content": [
            {
                "token": token.text,
                "logprob": _finite(token.logprob),
                "bytes": list(token.text.encode()),
                "top_logprobs": [_alternative(text, p) for text, p in _named(token)],
            }
            for token in tokens
        ]
    }


def _alternative(text: str, logprob: float) -> JsonObject:
    # The bytes of a token that is part of a character, and was not written, are not
    # known.
    encoded = None if BROKEN in text else list(text.encode())
    return {"token": text, "logprob": _finite(logprob), "bytes": encoded}


def _named(token: Token) -> list[tuple[str, float]]:
    logprobs = (logprob for _, logprob in token.top_logprobs)
    return list(zip(token.top_texts, logprobs, strict=True))


def _finite(logprob: float | None) -> float:
    """Return the log-probability, or -9999 for minus infinity, which JSON lacks."""
    return logprob if logprob is not None and math.isfinite(logprob) else -9999.0
