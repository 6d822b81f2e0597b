"""What a row's seed is, and what is told of a row whether or not it could be answered."""

from __future__ import annotations

import hashlib
import json

from dise_core import LLM, InputError, ModelOutputError, Outcome, RequestOutput
from dise_core.front.outputs import error_dict
from dise_core.params.base import Params
from dise_core.plugins.kinds import kinds_named_by
from dise_core.records import Record


def row_seed(seed: int, row_id: object) -> int:
    """Return the seed of a row: the first 8 bytes of SHA-256 of [seed, id] in JSON, big-endian."""
    key = json.dumps([seed, row_id], default=str)
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8])


def check_names(llm: LLM, params: Params) -> None:
    """Raise InputError for an unknown strategy or its wrong settings: no row would be answered."""
    for kind in kinds_named_by(type(params)):
        llm.catalog.chosen(kind, params)


def told(outcome: Outcome[RequestOutput]) -> Record:
    """Return an answer as JSON, without its time, or the error of a row that is itself at fault.
    Raises any other error: another run may answer the row.
    """
    if isinstance(outcome.error, InputError | ModelOutputError):
        return {"error": error_dict(outcome.error)}
    answer = outcome.unwrap().to_dict()
    answer["usage"].pop("seconds", None)
    return answer
