"""Reads in a request's pooling parameters, as one JSON text.

vLLM copies the parameters of each request, and copies every number of a list by itself: for lists
of positions and targets that took longer than all else that is done for a request. A text it hands
on as it is.
"""

from __future__ import annotations

import msgspec
from vllm import PoolingParams

from dise_adapters.vllm.wire import TASK
from dise_core.records import Record

Asked = list[Record]
"""What is asked of one text, as `to_wire` puts it."""


def pooling_params(asked: Asked) -> PoolingParams:
    """Return the parameters of a request that asks this of its text."""
    return PoolingParams(task=TASK, extra_kwargs={"reads": msgspec.json.encode(asked)})


def asked_in(extra: Record) -> Asked:
    """Return what a request asks, from its `extra_kwargs`; lists, too, are understood."""
    asked = extra["reads"]
    found: Asked = msgspec.json.decode(asked) if isinstance(asked, bytes) else asked
    return found
