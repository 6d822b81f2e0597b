"""Answers as columns of Arrow, of fixed types whatever the answers are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dise_core import InputError
from dise_core.records import Fields, Record

if TYPE_CHECKING:
    import pyarrow

TYPES = {
    "dise_error": "string",
    "dise_seed": "uint64",
    "dise_nfe": "int64",
    "dise_text": "string",
    "dise_finish_reason": "string",
    "dise_score": "float64",
    "dise_standard_error": "float64",
    "dise_probability": "float64",
    "dise_num_positions": "int32",
}
"""The columns of an answer: of its first output, which has the best score."""


def columns_of(answers: Sequence[Fields]) -> dict[str, pyarrow.Array]:
    """Return the columns of answers as JSON; in `dise_outputs` all outputs of each, and the
    log-probabilities of the first's tokens, where they were asked for.
    """
    import pyarrow

    rows = [_flat(answer) for answer in answers]
    outputs = [
        [{"text": one["text"], "score": one["score"]["value"]} for one in answer.get("outputs", ())]
        for answer in answers
    ]
    types = {name: pyarrow.type_for_alias(alias) for name, alias in TYPES.items()}
    types["dise_logprobs"] = pyarrow.list_(pyarrow.float32())
    output = pyarrow.struct({"text": pyarrow.string(), "score": pyarrow.float64()})
    return {
        **{name: pyarrow.array([row[name] for row in rows], kind) for name, kind in types.items()},
        "dise_outputs": pyarrow.array(outputs, pyarrow.list_(output)),
    }


def with_columns(table: pyarrow.Table, columns: dict[str, pyarrow.Array]) -> pyarrow.Table:
    """Return the table with these columns behind its own. Raises InputError for a taken name."""
    for name, column in columns.items():
        if name in table.column_names:
            raise InputError(f"the input has a column {name!r}, which answers are to have", "input")
        table = table.append_column(name, column)
    return table


def shard_columns(numbers: Sequence[int], answers: Sequence[Fields]) -> dict[str, pyarrow.Array]:
    """Return the columns of a shard: the number of each row, and each answer whole, as JSON."""
    import pyarrow

    whole = [json.dumps(answer, ensure_ascii=False, allow_nan=False) for answer in answers]
    return {
        "dise_line": pyarrow.array(numbers, pyarrow.int64()),
        **columns_of(answers),
        "dise_json": pyarrow.array(whole, pyarrow.string()),
    }


def _flat(answer: Fields) -> Record:
    best: Record = next(iter(answer.get("outputs", ())), {})
    score = best.get("score", {})
    return {
        "dise_error": answer["error"]["message"] if "error" in answer else None,
        "dise_seed": answer.get("seed"),
        "dise_nfe": answer.get("usage", {}).get("nfe"),
        "dise_text": best.get("text"),
        "dise_finish_reason": best.get("finish_reason"),
        "dise_score": score.get("value"),
        "dise_standard_error": score.get("standard_error"),
        "dise_probability": best.get("probability"),
        "dise_num_positions": score.get("num_positions"),
        "dise_logprobs": [token["logprob"] for token in best.get("tokens", ())] or None,
    }
