"""Responses to clients: the library's answers in OpenAI's format, with a `dise` object in the
answer and in each choice.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Sequence
from typing import Any

from dise_core import CanvasUpdate, CompletionOutput, RequestOutput, Token
from dise_core.pieces import BROKEN
from dise_core.records import Record

LOWEST = -9999.0
"""Stands for a log-probability of minus infinity, which JSON cannot express."""


class Envelope:
    """What all parts of one answer share: its id, model, time, and kind of OpenAI object."""

    def __init__(self, kind: str, model: str) -> None:
        """kind: "text_completion" or "chat.completion"."""
        self.kind = kind
        self.id = f"{'chatcmpl' if self.is_chat else 'cmpl'}-{uuid.uuid4().hex}"
        self.created = int(time.time())
        self.model = model

    @property
    def is_chat(self) -> bool:
        return self.kind == "chat.completion"

    def of(self, choices: list[Record], **more: Any) -> Record:
        """Return one object with these choices."""
        return {
            "id": self.id,
            "object": self.kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
            **more,
        }

    def chunk(self, choices: list[Record], **more: Any) -> Record:
        record = self.of(choices, **more)
        return record | {"object": "chat.completion.chunk"} if self.is_chat else record

    def whole(self, answers: Sequence[RequestOutput], logprobs: int | None) -> Record:
        """Return the answer to all prompts of a request. logprobs: None leaves out OpenAI's
        log-probabilities.
        """
        outputs = [(output, answer.seed) for answer in answers for output in answer.outputs]
        choices = [self._choice(index, *output, logprobs) for index, output in enumerate(outputs)]
        return self.of(choices, usage=usage(answers), dise=cost(answers))

    def _choice(
        self, index: int, output: CompletionOutput, seed: int | None, logprobs: int | None
    ) -> Record:
        message = {"message": {"role": "assistant", "content": output.text}}
        text = message if self.is_chat else {"text": output.text}
        return self._ended(index, text, output, seed, logprobs)

    def delta(self, index: int, text: str, is_first: bool = False) -> Record:
        """Return the choice of a chunk that adds text."""
        if not self.is_chat:
            return {"index": index, "text": text, "finish_reason": None, "logprobs": None}
        role = {"role": "assistant"} if is_first else {}
        return {
            "index": index,
            "delta": {**role, "content": text},
            "finish_reason": None,
            "logprobs": None,
        }

    def last(
        self, index: int, output: CompletionOutput, seed: int | None, logprobs: int | None
    ) -> Record:
        """Return the choice of the chunk that ends an output."""
        text: Record = {"delta": {}} if self.is_chat else {"text": ""}
        return self._ended(index, text, output, seed, logprobs)

    def _ended(
        self,
        index: int,
        text: Record,
        output: CompletionOutput,
        seed: int | None,
        logprobs: int | None,
    ) -> Record:
        """Return a choice whose output is complete. text: the choice's field with the text."""
        shown = self.logprobs(output) if logprobs is not None else None
        return {
            "index": index,
            **text,
            "finish_reason": output.finish_reason,
            "logprobs": shown,
            "dise": confidence(output, seed),
        }

    def logprobs(self, output: CompletionOutput) -> Record:
        """Return the log-probabilities of regenerating each of the text's tokens given the whole
        text, end tokens left out.
        """
        tokens = [token for token in output.tokens if not token.is_end]
        return chat_logprobs(tokens) if self.is_chat else text_logprobs(tokens)


def confidence(output: CompletionOutput, seed: int | None) -> Record:
    """Return a choice's `dise` object: the score, the probability of being right, whether it
    abstained, each token's log-probability, the length controller's trace, the reviser's, the seed
    that reproduces the answer, and which of its samples it is.
    """
    record = output.to_dict() | {"seed": seed, "sample": output.index}
    shown = ("score", "probability", "abstained", "tokens", "length", "revisions", "seed", "sample")
    return {key: record[key] for key in shown if key in record}


def usage(answers: Sequence[RequestOutput]) -> dict[str, int]:
    """Return OpenAI's token counts."""
    prompt = sum(answer.usage.prompt_tokens for answer in answers)
    written = sum(answer.usage.completion_tokens for answer in answers)
    return {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}


def cost(answers: Sequence[RequestOutput]) -> Record:
    """Return an answer's NFE and seconds, and with a cache whether it is approximate and its
    computed NFE.
    """
    record: Record = {
        "nfe": sum(answer.usage.nfe for answer in answers),
        "seconds": round(max(answer.usage.seconds for answer in answers), 4),
    }
    if (cache := answers[0].cache) != "none":
        computed = sum(answer.usage.nfe_computed for answer in answers)
        is_approximate = any(answer.is_approximate for answer in answers)
        record |= {
            "cache": cache,
            "is_approximate": is_approximate,
            "nfe_computed": round(computed, 2),
        }
    return record


def canvas(update: CanvasUpdate) -> Record:
    """Return one canvas update as JSON for a chunk's `dise` object."""
    return {
        "index": update.index,
        "num_tokens": update.num_tokens,
        "is_fresh": update.is_fresh,
        "committed": [
            token._asdict() | ({} if logprob is None else {"logprob": _finite(logprob)})
            for token, logprob in zip(update.committed, update.logprobs, strict=True)
        ],
        "text": update.text,
        **({"scored": _scored(update)} if update.scored else {}),
    }


def _scored(update: CanvasUpdate) -> list[Record]:
    """Return the tokens of blocks that are finished, as JSON."""
    return [
        {"position": position, "logprob": _finite(logprob)} for position, logprob in update.scored
    ]


def text_logprobs(tokens: Sequence[Token]) -> Record:
    """Return log-probabilities in the format of OpenAI's completions."""
    offsets, offset = [], 0
    for token in tokens:
        offsets.append(offset)
        offset += len(token.text)
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [_finite(_own(token)) for token in tokens],
        "top_logprobs": [{text: _finite(p) for text, p in _named(token)} for token in tokens],
        "text_offset": offsets,
    }


def chat_logprobs(tokens: Sequence[Token]) -> Record:
    """Return log-probabilities in the format of OpenAI's chat."""
    return {
        "content": [
            _entry(token.text, token.logprob)
            | {"top_logprobs": [_alternative(text, p) for text, p in _named(token)]}
            for token in tokens
        ]
    }


def _entry(text: str, logprob: float | None) -> Record:
    return {"token": text, "logprob": _finite(logprob), "bytes": list(text.encode())}


def _alternative(text: str, logprob: float) -> Record:
    """Return the entry of a token that was not written; its bytes are not known if it is part of a
    character.
    """
    entry = _entry(text, logprob)
    return entry | {"bytes": None} if BROKEN in text else entry


def _named(token: Token) -> list[tuple[str, float]]:
    return [
        (text, logprob)
        for (_, logprob), text in zip(token.top_logprobs, token.top_texts, strict=True)
    ]


def _own(token: Token) -> float | None:
    """Return a token's log-probability, exactly as it stands among the likeliest ones: clients
    compare the two to tell whether it is the likeliest.
    """
    return dict(token.top_logprobs).get(token.id, token.logprob)


def _finite(logprob: float | None) -> float:
    return logprob if logprob is not None and math.isfinite(logprob) else LOWEST
