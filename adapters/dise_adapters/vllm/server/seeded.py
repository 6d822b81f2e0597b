"""What is asked of a stock vLLM server about one canvas of DiffusionGemma, and what it tells."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dise_adapters.vllm.server.schemas import CanvasAnswer
from dise_core import Ids, ModelOutputError
from dise_core.records import Record

TOP = 20
"""The likeliest tokens that a server tells unless its --max-logprobs says otherwise."""
MAX_NAMED = 128
"""The most ids of logprob_token_ids."""
BYTES_PER_TOKEN = 2**6
"""A token's name and number in an answer, and what stands around them."""

BodyAndCost = tuple[Record, int]
"""A body, and about how many bytes answer it."""


@dataclass(slots=True, eq=False)
class SeededCanvas:
    """A canvas that is read after the text before it, int64 each. num_top: how many of
    the likeliest tokens are asked for. token_ids: which ids besides, by the position in the
    canvas. logprobs: known ones by id, for each position. salt: see `completion`.
    """

    before: Ids
    tokens: Ids
    salt: str = ""
    num_top: int = TOP
    token_ids: dict[int, set[int]] = field(default_factory=dict)
    logprobs: list[dict[int, float]] = field(default_factory=list)

    @property
    def num_rows(self) -> int:
        return max(self.token_ids) + 1

    def missing(self) -> Iterator[list[int]]:
        """Yield the ids that are wanted and not told, as many as a request may name."""
        missing = (ids - self.logprobs[row].keys() for row, ids in self.token_ids.items())
        ids = sorted(set[int]().union(*missing))
        for start in range(0, len(ids), MAX_NAMED):
            yield ids[start : start + MAX_NAMED]

    def request(self, model: str, ids: Sequence[int]) -> BodyAndCost:
        """Return a request for the ids that are given, else for the likeliest."""
        num_reported = len(ids) or self.num_top
        body, num_bytes = completion(model, self.before, self.num_rows, self.salt, num_reported)
        body |= {
            # Neutral, as a filter of the model's generation_config.json would hide tokens.
            "top_p": 1,
            "top_k": 0,
            "logprobs": self.num_top,
            "vllm_xargs": {
                "diffusion_seed_canvas": self.tokens.tolist(),
                "diffusion_canvas_length": len(self.tokens),
                "diffusion_max_steps": 1,
                "diffusion_read_only": True,
            },
        }
        return body | ({"logprob_token_ids": list(ids)} if ids else {}), num_bytes

    def note(self, answer: CanvasAnswer) -> None:
        """Keep what an answer tells. Raises ModelOutputError for too few positions."""
        rows = answer.choice.logprobs.rows()
        if len(rows) != self.num_rows:
            raise ModelOutputError(
                f"the server answered {len(rows)} of {self.num_rows} tokens of a canvas"
            )
        before = self.logprobs or [{} for _ in rows]
        self.logprobs = [old | new for old, new in zip(before, rows, strict=True)]

    def logprob(self, row: int, token_id: int) -> float:
        """Return the log-probability of a token: of one that dominates by what is told of
        all others, since the server's float32 does not tell 1e-9 from 0. Raises
        ModelOutputError for one that was left out.
        """
        row_logprobs = self.logprobs[row]
        if token_id not in row_logprobs:
            raise ModelOutputError(f"the server left out token {token_id}, which was asked for")
        value = row_logprobs[token_id]
        if value < -math.log(2):
            return value
        remainder = math.fsum(
            math.exp(row_logprobs[rival]) for rival in row_logprobs if rival != token_id
        )
        return math.log1p(-max(remainder, -math.expm1(value)))

    def likeliest(self, row: int, count: int) -> list[int]:
        row_logprobs = self.logprobs[row]
        return sorted(row_logprobs, key=lambda token_id: (-row_logprobs[token_id], token_id))[
            :count
        ]


def completion(
    model: str, prompt: Ids, max_tokens: int, salt: str, num_reported: int = 0
) -> BodyAndCost:
    """Return a request for what follows a prompt. salt: of the Reads; vLLM then keeps the
    prompt for requests of the same salt alone. num_reported: tokens at each position, besides
    the one that stands there. DiffusionGemma has temperatures of its own, so that vLLM
    takes no other than 1.
    """
    body: Record = {
        "model": model,
        "prompt": prompt.tolist(),
        "max_tokens": max_tokens,
        "temperature": 1,
        "logprobs": 0,
        "return_tokens_as_token_ids": True,
    }
    if salt:  # which may be made of a client's key
        body["cache_salt"] = hashlib.sha256(salt.encode()).hexdigest()
    return body, max_tokens * (num_reported + 4) * BYTES_PER_TOKEN
