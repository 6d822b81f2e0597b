"""JSON lines: a line that cannot be answered is named by its number, and its neighbours are
answered.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.hostile.bounds import bounded
from tests.jsonlines import records_of
from tests.refusals.table import Refusal, Row, Table

PROBLEM = "83,18,75 -> 10"
VERBS: dict[str, tuple[dict[str, Any], tuple[object, ...]]] = {
    "generate": (
        {"prompt": PROBLEM},
        ("--max-tokens", 24, "--block-length", 12, "--tokens-per-step", 6),
    ),
    "rank": ({"prompt": PROBLEM, "candidates": ["1+2=3", [1, 2]]}, ("--no-chat",)),
    "decide": ({"input": PROBLEM}, ("--layout", "cloze", "--choice", "18=+,-")),
    "fill": ({"prefix": "1+", "suffix": "=3"}, ("--max-tokens", 1)),
}
"""A line that each answers, and how it is asked."""

LINES: list[Row] = [
    (("generate", b"{not json"), "is not JSON", "is not JSON: Expecting property name"),
    (("generate", {"text": "no prompt"}), "prompt, prompt_ids",
     'needs either "prompt" (text) or "prompt_ids"'),
    (("generate", [1, 2]), "=[1, 2]", "is not a JSON object: [1, 2]"),
    (("generate", {"prompt_ids": [9999]}), "token_ids",
     "token id 9999 at position 0 is outside the vocabulary"),
    (("generate", {"prompt": "hello"}), "prompt='h'", "the model's vocabulary has no 'h'"),
    (("generate", {"prompt": 5}), "prompt", '"prompt" must be a text, not 5'),
    (("generate", {"prompt_ids": ["a"]}), "prompt_ids", '"prompt_ids" must be a list of integers'),
    (("generate", {"prompt": "x", "prompt_ids": [1]}), "prompt, prompt_ids",
     'needs either "prompt" (text) or "prompt_ids"'),
    (("generate", b'{"prompt": "a", "note": ' + b"[" * 100_000 + b"}"), "=nested",
     "is nested deeper than 64"),
    (("generate", b'{"prompt": "a", "note": NaN}'), "=NaN",
     "is not JSON: NaN is no number in JSON"),
    (("generate", b'{"prompt": "a", "note": "\\ud800"}'), "=surrogate pair",
     "holds '\\ud800', half of a surrogate pair"),
    (("generate", b'{"prompt": "a", "note": "\xff"}'), "=byte 0xff",
     "is not UTF-8: byte 0xff, invalid start byte"),
    (("generate", b'"\xc2\x9b31m"'), "=31m", 'is not a JSON object: "\ufffd31m"'),
    (("rank", {"prompt": PROBLEM}), "candidates",
     'needs "candidates", a list of texts or of token ids'),
    (("rank", {"prompt": PROBLEM, "candidates": []}), "candidates", ""),
    (("rank", {"prompt": PROBLEM, "candidates": [5]}), "candidate_ids",
     '"candidate_ids" must be a list of integers'),
    (("decide", {"n": 2}), "input", 'needs "input"'),
    (("decide", {"input": PROBLEM, "questions": 3}), "questions", "questions"),
    (("decide", 4), "=4", "is not a JSON object"),
    (("fill", {"prefix": "1"}), "suffix", 'needs either "suffix"'),
]  # fmt: skip


def refused(given: tuple[str, object], request: pytest.FixtureRequest) -> Refusal:
    verb, line = given
    good, more = VERBS[verb]
    source, output = (request.getfixturevalue("tmp_path") / name for name in ("in", "out"))
    bad = line if isinstance(line, bytes) else json.dumps(line).encode()
    source.write_bytes(b"\n".join([json.dumps(good).encode(), bad, json.dumps(good).encode()]))
    with bounded():
        run = request.getfixturevalue("dise")(verb, "--input", source, "--output", output, *more)
    assert (run.code, run.out) == (1, "")
    assert [record["line"] for record in records_of(output)] == [1, 3]
    told, closing = run.err.splitlines()
    assert closing == "dise: 2 answered, 1 failed"
    text = re.fullmatch("dise: line 2: (.*)", told)
    assert text is not None, told
    return Refusal(text[1], None)


TABLES = [Table("lines", refused, LINES)]
