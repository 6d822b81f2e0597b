"""What the operator of a server allows."""

from __future__ import annotations

from pydantic import Field

from dise_core.params import Params


class Limits(Params):
    """The options of `dise serve` beside those of the model."""

    max_waiting: int = Field(1024, ge=1)
    """Requests that may wait to start; one more gets 429."""
    max_tokens_limit: int = Field(4096, ge=1)
    """The most tokens that an answer may ask for."""
    max_body_bytes: int = Field(2 * 2**20, ge=1)
    """The largest request in bytes."""
    timeout: float = Field(600.0, gt=0)
    """Seconds after which a request fails."""
    grace: float = Field(30.0, ge=0)
    """Seconds that requests under way have to end at SIGTERM."""
