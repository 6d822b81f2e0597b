"""What the operator of a server allows, asks for, and sets for all requests."""

import os
import re
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from dise_core import Budget, InputError, SamplingParams
from dise_core.params.base import Name, Params, Settings
from dise_core.params.marks import remaining
from dise_core.params.objects import with_names
from dise_core.records import Fields, Record

MAX_SECONDS = 1e6

ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]*://[^/\s,]+")

Seconds = Annotated[float, Field(gt=0, le=MAX_SECONDS)]


class Limits(Params):
    """The options of `dise serve` beside those of the model."""

    max_waiting: int = Field(default=1024, ge=1)
    """Texts that may wait to start; one more gets 429, and a request of more 400."""
    max_tokens_limit: int = Field(default=4096, ge=1)
    """The most tokens that an answer may ask for."""
    max_passes: int = Field(default=2**15, ge=1)
    """The most forward passes, of one sequence each, that a request may take; one that
    goes on gets 400."""
    max_pass_tokens: int = Field(default=2**27, ge=1)
    """The most tokens in all the forward passes of a request; one that goes on gets 400."""
    max_answer_logprobs: int = Field(default=2**17, ge=1)
    """The most log-probabilities that an answer may tell: of each token of all its texts,
    two and the likeliest ones asked for. More gets 400. A given text counts as a token a
    byte."""
    max_body_bytes: int = Field(default=2 * 2**20, ge=1)
    """The largest request in bytes."""
    max_bytes_in_flight: int = Field(default=64 * 2**20, ge=1)
    """The most bytes of all requests that have not been answered yet; one more gets 429."""
    max_connections: int = Field(default=1024, ge=1)
    """Connections at a time; a request on one more gets 503."""
    timeout: Seconds = Field(default=600.0)
    """Seconds after which a request fails."""
    body_timeout: Seconds = Field(default=60.0)
    """Seconds within which the body of a request must have arrived."""
    idle_timeout: Seconds = Field(default=75.0)
    """Seconds that a connection stays open after an answer. Clients and proxies keep one
    for up to 60: it should be closed by them."""
    grace: float = Field(default=30.0, ge=0, le=MAX_SECONDS)
    """Seconds that requests under way have to end at SIGTERM."""
    served_model_name: tuple[Name, ...] = ()
    """A name that clients give for the model, in place of its own; answers give the first."""
    default: Settings = Field(default_factory=dict)
    """A setting for requests that do not say otherwise, for example steps=64."""
    api_key_file: Path | None = None
    """A file of keys, one a line, of which every client must send one."""
    cache_salt_by_key: bool = False
    """Reuse what is kept of texts' beginnings, and prepared constraints, only among
    requests with the same API key, so that no client learns from cached_tokens, or from
    the time, what others asked."""
    allowed_origins: tuple[str, ...] = ()
    """An origin whose pages may call this server from a browser, such as
    https://app.example; * allows all."""
    allowed_host: tuple[str, ...] = ()
    """A name that clients may call the server by, beside its address and that of this
    machine; * allows all. Any other Host header gets 403, which keeps pages of other
    sites away."""

    @field_validator("allowed_origins")
    @classmethod
    def _are_origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            if not ORIGIN.fullmatch(origin):
                raise ValueError(
                    "an origin is SCHEME://HOST or SCHEME://HOST:PORT, without a path, or *; "
                    f"not {origin!r:.80}"
                )
        return origins

    @property
    def budget(self) -> Budget:
        """What one call may cost."""
        return Budget(self.max_passes, self.max_pass_tokens)


class Defaults:
    """Options of SamplingParams, which apply where a request does not set them."""

    def __init__(self, settings: Fields) -> None:
        """Raises InputError for what no request may ask for, and for logprobs."""
        if "logprobs" in settings:
            raise InputError("there is no default for logprobs: each request sets it", "logprobs")
        self.params = with_names(SamplingParams(**settings))
        self._settings: Record = self.params.model_dump(exclude_unset=True)

    def complete(self, fields: Fields, names: Collection[str]) -> Record:
        """Return a request's fields, and the defaults of the names that it leaves out."""
        usual = partial(getattr, self.params)
        defaults = remaining(SamplingParams, self._settings, fields, usual)
        return {**{name: defaults[name] for name in defaults.keys() & names}, **fields}


def api_keys(file: Path | None) -> tuple[str, ...]:
    """Return the environment's keys and the file's. Raises InputError for an empty file."""
    key = os.environ.get("DISE_API_KEY", "").strip()
    of_environment = (key,) if key else ()
    if file is None:
        return of_environment
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InputError(
            f"cannot read {file}: {error.strerror or error}", "api_key_file"
        ) from error
    lines = content.decode("utf-8", "surrogateescape").splitlines()
    if not (keys := tuple(line.strip() for line in lines if line.strip())):
        raise InputError(f"{file} holds no key: write one on a line", "api_key_file")
    return of_environment + keys
