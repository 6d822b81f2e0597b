"""Responses to clients: the library's answers in OpenAI's format, with `dise` objects."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from dise_core import CanvasUpdate, CompletionOutput, RequestOutput, Token
from dise_core.models.pieces import BROKEN

JsonObject = dict[str, object]


def text_tokens(output: CompletionOutput) -> list[Token]:
    """Return the tokens of the text: all but end tokens."""
    return [token for token in output.tokens if not token.is_end]


def confidence(output: CompletionOutput, seed: int | None) -> JsonObject:
    """Return a choice's `dise` object. seed: that which reproduces the answer."""
    record = output.to_dict() | {"seed": seed, "sample": output.index}
    shown = ("score", "probability", "abstained", "tokens", "length", "revisions", "seed", "sample")
    return {key: record[key] for key in shown if key in record}


def usage(answers: Sequence[RequestOutput]) -> dict[str, int]:
    """Return OpenAI's token counts."""
    num_read = sum(answer.usage.prompt_tokens for answer in answers)
    return token_counts(num_read, answers)


def token_counts(num_read: int, answers: Sequence[RequestOutput]) -> dict[str, int]:
    """Return OpenAI's counts of what was read and of what the answers hold."""
    written = sum(answer.usage.completion_tokens for answer in answers)
    total = num_read + written
    return {"prompt_tokens": num_read, "completion_tokens": written, "total_tokens": total}


def cost(answers: Sequence[RequestOutput]) -> JsonObject:
    """Return an answer's NFE and seconds, and what a cache made of them."""
    record: JsonObject = {
        "nfe": sum(answer.usage.nfe for answer in answers),
        "seconds": round(max(answer.usage.seconds for answer in answers), 4),
    }
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
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [_finite(_own(token)) for token in tokens],
        "top_logprobs": [{text: _finite(p) for text, p in _named(token)} for token in tokens],
        "text_offset": offsets,
    }


def chat_logprobs(tokens: Sequence[Token]) -> JsonObject:
    """Return log-probabilities in the format of OpenAI's chat."""
    return {
        "content": [
            _entry(token.text, token.logprob)
            | {"top_logprobs": [_alternative(text, p) for text, p in _named(token)]}
            for token in tokens
        ]
    }


def _entry(text: str, logprob: float | None) -> JsonObject:
    return {"token": text, "logprob": _finite(logprob), "bytes": list(text.encode())}


def _alternative(text: str, logprob: float) -> JsonObject:
    """Return the entry of a token that was not written; its bytes are not known if it is part of a
    character.
    """
    entry = _entry(text, logprob)
    return entry | {"bytes": None} if BROKEN in text else entry


def _named(token: Token) -> list[tuple[str, float]]:
    logprobs = (logprob for _, logprob in token.top_logprobs)
    return list(zip(token.top_texts, logprobs, strict=True))


def _own(token: Token) -> float | None:
    """Return a token's log-probability, exactly as it stands among the likeliest ones: clients
    compare the two to tell whether it is the likeliest.
    """
    return dict(token.top_logprobs).get(token.id, token.logprob)


def _finite(logprob: float | None) -> float:
    """Return the log-probability, or what stands for minus infinity, which JSON cannot express."""
    return logprob if logprob is not None and math.isfinite(logprob) else -9999.0
