"""Seeds of rows, and answers as JSON and as Arrow columns of fixed types."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dise_app.files.runner import Answered, P
from dise_core import InputError, ModelOutputError, Outcome, SamplingParams
from dise_core.errors import error_line
from dise_core.front.outputs import error_dict
from dise_core.params.base import Params
from dise_core.records import Fields, Record
from dise_decide.params import DecisionParams

if TYPE_CHECKING:
    import pyarrow


LINE, WHOLE = "dise_line", "dise_json"
"""Columns of a row's number, and of all of its answer."""


def row_seed(seed: int, row_id: object) -> int:
    """Return a row's seed: the first 8 bytes of SHA-256 of [seed, id] in JSON, big-endian."""
    key = json.dumps([seed, row_id], default=str)
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8])


def seeded(params: P, row_id: object) -> P:
    """Return the params of a row: where answers are drawn, with a seed of its own."""
    if not isinstance(params, SamplingParams):
        return params
    return params.model_copy(update={"seed": row_seed(params.seed or 0, row_id)})


def to_json(outcome: Outcome[Answered]) -> Record:
    """Return an answer as JSON, without its time, or the error of a row that is itself at
    fault.
    Raises any other error, since another run may answer the row.
    """
    if isinstance(outcome.error, InputError | ModelOutputError):
        return {"error": error_dict(outcome.error)}
    answer = outcome.unwrap().to_dict()
    answer["usage"].pop("seconds", None)
    return answer


def columns_of(answers: Sequence[Fields], params: Params) -> dict[str, pyarrow.Array]:
    """Return the columns of answers, given as JSON, to requests with these params. They
    hold the first output, which has the best score, and in `dise_outputs` all of them.
    """
    import pyarrow

    rows = [_flat(answer) for answer in answers]
    return {
        f"dise_{name}": pyarrow.array([row.get(name) for row in rows], kind)
        for name, kind in _types(params).items()
    }


def concatenate(tables: Sequence[pyarrow.Table], params: Params) -> pyarrow.Table:
    """Return the rows of all tables, in types that hold those of each. Raises InputError
    where a column has no such type, occurs twice, or has the name of an answer's column.
    """
    import pyarrow

    ours = {LINE, WHOLE, *(f"dise_{name}" for name in _types(params))}
    for name, count in (pair for t in tables for pair in Counter(t.column_names).items()):
        if name in ours:
            raise InputError(
                f"the input has a column {name!r}, which answers are to have; rename it", "input"
            )
        if count > 1:
            raise InputError(f"the input has a column {name!r} twice; rename it", "input")
    try:
        return pyarrow.concat_tables(tables, promote_options="permissive")
    except pyarrow.ArrowException as error:
        raise InputError(
            f"columns of one name differ between files of the input: {error_line(error)}", "input"
        ) from error


def with_columns(table: pyarrow.Table, columns: dict[str, pyarrow.Array]) -> pyarrow.Table:
    """Return the table with these columns added, whose names it must not have."""
    for name, column in columns.items():
        table = table.append_column(name, column)
    return table


def _types(params: Params) -> dict[str, pyarrow.DataType]:
    """Return the names of columns and their types. Probabilities of a typed question's
    answer are in the order of its options.
    """
    import pyarrow

    text, number, count = pyarrow.string(), pyarrow.float64(), pyarrow.int64()
    common = {"error": text, "nfe": count, "seed": pyarrow.uint64()}
    score = {"text": text, "score": number}
    if isinstance(params, DecisionParams):
        answer = {
            **{"name": text, "type": text, "choice": text, "score": number},
            **{"confidence": number, "abstained": pyarrow.bool_(), "probability": number},
            "probabilities": pyarrow.list_(number),
        }
        return {**common, "answers": pyarrow.list_(pyarrow.struct(answer))}
    more = {"standard_error": number, "probability": number, "num_positions": pyarrow.int32()}
    lists = {"logprobs": pyarrow.float32(), "outputs": pyarrow.struct(score)}
    lists = {name: pyarrow.list_(kind) for name, kind in lists.items()}
    return {**common, **score, "finish_reason": text, **more, **lists}


def _flat(answer: Fields) -> Record:
    outputs, decisions = answer.get("outputs", ()), answer.get("answers", ())
    best: Record = next(iter(outputs), {})
    return {
        **answer,
        **answer.get("usage", {}),
        **best,
        **best.get("score", {}),
        "error": answer.get("error", {}).get("message"),
        "score": best.get("score", {}).get("value"),
        "logprobs": [token["logprob"] for token in best.get("tokens", ())] or None,
        "outputs": [{"text": o["text"], "score": o["score"]["value"]} for o in outputs],
        "answers": [
            {
                **answer,
                "choice": _text(answer.get("choice")),
                "probabilities": [p["probability"] for p in answer.get("probabilities", ())],
            }
            for answer in decisions
        ],
    }


def _text(choice: str | bool | None) -> str | None:
    return json.dumps(choice) if isinstance(choice, bool) else choice
