"""Reads as one JSON string in a request's pooling parameters.

vLLM deep-copies each request's parameters, number by number: for lists of positions and targets
that took longer than everything else that a request needs. A string is not copied.
"""

from __future__ import annotations

import msgspec
from vllm import PoolingParams

from dise_adapters.vllm.wire import TASK
from dise_core.records import Record

Asked = list[Record]
"""The Reads of one text, as `to_wire` encodes them."""


def pooling_params(asked: Asked) -> PoolingParams:
    """Return the parameters of a request that carries these Reads."""
    return PoolingParams(task=TASK, extra_kwargs={"reads": msgspec.json.encode(asked)})


def asked_in(extra: Record) -> Asked:
    """Return the Reads in a request's `extra_kwargs`, as JSON or as a plain list."""
    asked = extra["reads"]
    found: Asked = msgspec.json.decode(asked) if isinstance(asked, bytes) else asked
    return found
